//! Rounds of looks at the machine's threads: in slices, at random times, and for a hundredth of a CPU at most, after a first one that
//! may take longer.

use std::collections::{HashMap, HashSet, VecDeque};

use hist::random::uniform;
use host::clock::{clock_ns, monotonic_ns};
use host::procs;
use host::task::{all_processes, threads_of};

/// Chooses a thread, by its process and ID.
pub(crate) type Chooses<'a> = &'a dyn Fn(u32, u32) -> bool;
/// Counts the chosen threads of a process, until a time, ns: of the rest, no more is said than that it is there.
pub(crate) type Counts<'a> = &'a dyn Fn(u32, u64) -> u64;

/// Shortest time from one round to the next, ns, on average.
const PAUSE_NS: f64 = 1e8;
/// Slices are so many times their cost apart.
const RARELY: u64 = 100;
/// Longest look at a stretch, ns: other work waits meanwhile.
const AT_ONCE_NS: u64 = 10_000_000;
/// Time that a first round takes without pause, ns.
const FIRST_NS: u64 = 100_000_000;
/// Time of a round in which processes with many threads are looked at again, ns.
const AGAIN_NS: u64 = 5_000_000;
/// Threads of a process that are looked at before others have their turn.
const MANY: usize = 256;

/// Turns of processes, and when they are due.
pub(crate) struct Rounds {
    pub(crate) own_tgid: u32,
    /// Processes that are still to be looked at in this round.
    pub(crate) round: VecDeque<u32>,
    /// CPU time of it until now.
    spent_ns: u64,
    is_first: bool,
    pub(crate) due_ns: u64,
    random: u64,
    processes: HashMap<u32, Process>,
}

/// Knowledge of a process.
#[derive(Default)]
struct Process {
    /// Not a kernel thread; `None`: not known yet.
    is_program: Option<bool>,
    /// Looks at it since the interval began.
    looks: u64,
    /// Those of its threads, when they were listed, that are still to be looked at.
    left: Vec<u32>,
    /// Number of those that are wanted, when they were listed or counted.
    listed: u64,
}

impl Process {
    fn is_program(&mut self, tgid: u32) -> bool {
        let ask = || procs::stack_start(tgid).is_some();
        *self.is_program.get_or_insert_with(ask)
    }

    /// Its threads are too many for one look.
    fn is_large(&self) -> bool {
        self.listed > MANY as u64
    }
}

impl Rounds {
    pub(crate) fn new(own_tgid: u32) -> Self {
        Self {
            own_tgid,
            round: VecDeque::new(),
            spent_ns: 0,
            is_first: true,
            due_ns: 0,
            random: monotonic_ns() | 1,
            processes: HashMap::new(),
        }
    }

    /// A part of a round, if it is due.
    pub(crate) fn slice(&mut self) -> Slice<'_> {
        let now_ns = monotonic_ns();
        let start_cpu_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let is_due = now_ns >= self.due_ns;
        if is_due && self.round.is_empty() {
            let all = all_processes();
            let alive: HashSet<u32> = all.iter().copied().collect();
            self.processes.retain(|tgid, _| alive.contains(tgid));
            self.round = all.into_iter().rev().collect();
            self.spent_ns = 0;
        }
        Slice {
            rounds: self,
            start_ns: now_ns,
            start_cpu_ns,
            is_due,
        }
    }

    /// Most looks at a process since the interval began; where all have many threads, at some of them.
    pub(crate) fn looks(&self) -> u64 {
        let most = |is_large: bool| {
            let all = self.processes.values();
            let alike = all.filter(|process| process.is_large() == is_large);
            alike.map(|process| process.looks).max().unwrap_or(0)
        };
        match most(false) {
            0 => most(true),
            looks => looks,
        }
    }

    /// Looks at each of a process's threads since the interval began; `None`: not all were looked at each time.
    pub(crate) fn looks_at(&self, tgid: u32) -> Option<u64> {
        let process = self.processes.get(&tgid)?;
        (!process.is_large()).then_some(process.looks)
    }

    /// Looks whether threads of a process may be there that were not looked at since the interval began.
    pub(crate) fn may_miss_threads_of(&self, tgid: u32) -> bool {
        let process = self.processes.get(&tgid);
        process.is_some_and(|process| process.is_large() || process.looks == 0)
    }

    /// Looks whether a process was there when the round began.
    pub(crate) fn knows(&self, tgid: u32) -> bool {
        self.processes.contains_key(&tgid)
    }

    /// Number of threads that were there and have not been looked at since the interval began. `looked`: those that have, by process.
    pub(crate) fn not_looked_at(
        &mut self,
        looked: impl Iterator<Item = u32>,
        counts: Counts<'_>,
    ) -> u64 {
        let mut by_process: HashMap<u32, u64> = HashMap::new();
        looked.for_each(|tgid| *by_process.entry(tgid).or_default() += 1);
        let until_ns = monotonic_ns() + AT_ONCE_NS;
        for tgid in self.round.iter().filter(|tgid| **tgid != self.own_tgid) {
            let process = self.processes.entry(*tgid).or_default();
            if process.listed > 0 {
                continue;
            }
            let chosen = counts(*tgid, until_ns);
            let is_asked = chosen > 0 && monotonic_ns() < until_ns;
            if !is_asked || process.is_program(*tgid) {
                process.listed = chosen;
            }
        }
        let missed = self.processes.iter().map(|(tgid, process)| {
            let looked = by_process.get(tgid).copied().unwrap_or(0);
            match process.is_large() || process.looks == 0 {
                true => process.listed.saturating_sub(looked),
                false => 0,
            }
        });
        missed.sum()
    }

    pub(crate) fn begin_interval(&mut self) {
        self.processes
            .values_mut()
            .for_each(|process| process.looks = 0);
    }
}

/// A part of a round.
pub(crate) struct Slice<'a> {
    rounds: &'a mut Rounds,
    start_ns: u64,
    start_cpu_ns: u64,
    is_due: bool,
}

impl Slice<'_> {
    /// The next process whose turn it is.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let Rounds {
            round,
            processes,
            own_tgid,
            ..
        } = self.rounds;
        if !self.is_due || monotonic_ns() >= self.start_ns + AT_ONCE_NS {
            return None;
        }
        while let Some(tgid) = round.pop_front() {
            if tgid != *own_tgid && processes.entry(tgid).or_default().is_program(tgid) {
                return Some(tgid);
            }
        }
        None
    }

    /// Threads of that process that are to be looked at, and all of them if they were listed anew and are many.
    pub(crate) fn threads(
        &mut self,
        tgid: u32,
        chooses: Chooses<'_>,
    ) -> (Vec<u32>, Option<HashSet<u32>>) {
        let process = self.rounds.processes.entry(tgid).or_default();
        process.looks += 1;
        let mut listed = None;
        if process.left.is_empty() {
            let chosen = threads_of(tgid).filter(|tid| chooses(tgid, *tid));
            process.left = chosen.collect();
            let was_large = process.is_large();
            process.listed = process.left.len() as u64;
            if process.is_large() != was_large {
                // Looks at some threads are no looks at all of them.
                process.looks = 1;
            }
            listed = process
                .is_large()
                .then(|| process.left.iter().copied().collect());
        }
        let rest = process.left.len().saturating_sub(MANY);
        let now = process.left.split_off(rest);
        if rest > 0 && self.has_time() {
            self.rounds.round.push_back(tgid);
        }
        (now, listed)
    }

    /// CPU time that it has taken: on a busy machine more passes.
    fn spent_ns(&self) -> u64 {
        clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(self.start_cpu_ns)
    }

    /// Those with many threads have them looked at as long as this is short.
    fn has_time(&self) -> bool {
        let most_ns = match self.rounds.is_first {
            true => FIRST_NS,
            false => AGAIN_NS,
        };
        self.rounds.spent_ns + self.spent_ns() < most_ns
    }

    /// Says when it goes on.
    pub(crate) fn end(self) {
        if !self.is_due {
            return;
        }
        let (spent_ns, is_hasty) = (self.spent_ns(), self.rounds.is_first && self.has_time());
        let rounds = self.rounds;
        rounds.spent_ns += spent_ns;
        let is_over = rounds.round.is_empty();
        if is_hasty && !is_over {
            return;
        }
        rounds.is_first = false;
        // At random times: those of a period would keep step with loads that have one.
        let pause_ns = (PAUSE_NS * (0.5 + uniform(&mut rounds.random))) as u64;
        let pause_ns = if is_over { pause_ns } else { 0 };
        rounds.due_ns = self.start_ns + pause_ns.max(RARELY * spent_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u32 = u32::MAX;
    const SMALL: u32 = u32::MAX - 1;
    const KERNELS: u32 = u32::MAX - 2;
    /// A time that no test is long enough for to be over.
    const LATER_NS: u64 = 1 << 62;

    /// Two processes, of which one has 600 threads; neither is there.
    fn rounds() -> Rounds {
        let mut rounds = Rounds::new(0);
        let process = |threads: u32| Process {
            is_program: Some(true),
            left: (1..=threads).collect(),
            listed: threads.into(),
            ..Process::default()
        };
        rounds.processes = HashMap::from([(LARGE, process(600)), (SMALL, process(3))]);
        rounds.round = VecDeque::from([LARGE, SMALL]);
        rounds
    }

    fn all(_: u32, _: u32) -> bool {
        true
    }

    fn seven(_: u32, _: u64) -> u64 {
        7
    }

    #[test]
    fn many_threads_are_looked_at_by_turns() {
        let mut rounds = rounds();
        let mut slice = rounds.slice();
        let mut turns = Vec::new();
        let mut seen = HashSet::new();
        // A slice is as long as it is, however long this test takes: this one goes on.
        while !slice.rounds.processes[&LARGE].left.is_empty() {
            slice.start_ns = LATER_NS;
            let tgid = slice.next().expect("whose turn it is");
            let (tids, listed) = slice.threads(tgid, &all);
            assert!(listed.is_none());
            turns.push((tgid, tids.len()));
            if tgid == LARGE {
                seen.extend(tids);
            }
        }
        assert_eq!(turns, [(LARGE, 256), (SMALL, 3), (LARGE, 256), (LARGE, 88)]);
        assert_eq!(seen.len(), 600);
        assert_eq!((rounds.looks(), rounds.looks_at(SMALL)), (1, Some(1)));
        assert_eq!((rounds.looks_at(LARGE), rounds.looks_at(7)), (None, None));
    }

    #[test]
    fn a_later_round_has_one_turn_for_each_if_that_takes_long() {
        let mut rounds = rounds();
        (rounds.is_first, rounds.spent_ns) = (false, AGAIN_NS);
        let mut slice = rounds.slice();
        slice.start_ns = LATER_NS;
        slice.threads(LARGE, &all);
        let turns: Vec<u32> = std::iter::from_fn(|| slice.next()).collect();
        assert_eq!(turns, [LARGE, SMALL], "as it was before");
        slice.end();
        // It is not due again.
        assert!(rounds.slice().next().is_none());
    }

    #[test]
    fn who_was_not_looked_at_is_counted() {
        let mut rounds = rounds();
        rounds.round.clear();
        assert_eq!(rounds.not_looked_at([].into_iter(), &seven), 603);
        let looked = [LARGE; 256].into_iter().chain([SMALL; 3]);
        for process in rounds.processes.values_mut() {
            process.looks = 1;
        }
        assert!(rounds.may_miss_threads_of(LARGE));
        assert!(
            !rounds.may_miss_threads_of(SMALL),
            "those that were not seen have ended"
        );
        // One of the small one's came later, or has gone.
        assert_eq!(rounds.not_looked_at(looked, &seven), 344);
        rounds.begin_interval();
        assert_eq!(rounds.looks(), 0);
        assert_eq!(rounds.not_looked_at([LARGE; 600].into_iter(), &seven), 3);
        // One that nothing is known of yet: this one. The other is the kernel's.
        let of_kernel = Process {
            is_program: Some(false),
            ..Process::default()
        };
        rounds.processes.insert(KERNELS, of_kernel);
        rounds.round.extend([std::process::id(), KERNELS]);
        assert_eq!(rounds.not_looked_at([LARGE; 600].into_iter(), &seven), 10);
    }
}
