//! Waits for what is no resource: locks, other programs. Threads are looked at now and then, which costs next to nothing and no
//! event; sums are estimates.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use host::clock::monotonic_ns;
use host::task::{comm_of, slices_of};
use host::waits::Reason;
use profile::rank::Rank;

use crate::pressure::calls::{self, Blocked};
use crate::pressure::rounds::{Chooses, Counts, Rounds};
use crate::pressure::victims::Filter;

/// Bytes of stack that are a frame deeper: less is two calls in one function.
const DEEPER: u64 = 256;
/// Bytes beyond which it is another stack, which says nothing: coroutines have their own.
const ANOTHER: u64 = 64 << 20;
/// Kinds of waits of a thread that are told apart by how deep they are.
const MOST_KINDS: usize = 64;
/// Moves in an interval that a thread has to make to be at work: one that reads this tool's reports makes one in each.
const LEAST_MOVES: u64 = 2;
/// Times that a thread gets a CPU in a second above which it is not idle: it passes something to and fro.
const BRISK: f64 = 5_000.0;

/// Waits of a process's threads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) tgid: u32,
    pub(crate) comm: Arc<str>,
    pub(crate) reason: Reason,
    /// A lock for sure: other futexes may be condition variables.
    pub(crate) is_lock: bool,
    /// Different ones.
    pub(crate) threads: u64,
    /// Mean number at a time.
    pub(crate) at_a_time: f64,
}

/// An interval's waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Number of times that threads were looked at.
    pub(crate) looks: u64,
    /// Threads that were not, there being too many.
    pub(crate) not_looked_at: u64,
    /// The most first; none of threads with nothing to do.
    pub(crate) rows: Vec<Waiting>,
    /// Threads of a choice that come back to a futex between all else that they do: for work, or for a lock that is made of a semaphore
    /// or condition variable. A look does not show who ends these waits, which would tell.
    pub(crate) undecided: Vec<Waiting>,
}

/// Looks.
pub(crate) struct Looks {
    rounds: Rounds,
    threads: HashMap<(u32, u32), Thread>,
    /// Names of processes that waited, by ID, from when they were first seen to: some end before the report.
    names: HashMap<u32, Arc<str>>,
}

/// Knowledge of a thread.
#[derive(Default)]
struct Thread {
    /// Number of times that it has got a CPU; 0: the kernel does not count.
    slices: u64,
    looked_ns: u64,
    now: Option<Blocked>,
    seen: Vec<Seen>,
    /// Looks at it since the interval began.
    looks: u64,
    /// Looks between which it has got a CPU, since the interval began.
    moves: u64,
}

/// A process, what it waits for, whether that is a lock, and whether it is not idle.
type Kind = (u32, Reason, bool, bool);

/// A kind of wait that it was seen in.
struct Seen {
    blocked: Blocked,
    is_brisk: bool,
    times: u64,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self {
            rounds: Rounds::new(std::process::id()),
            threads: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Goes on with a round, or begins one that is due; some 20 times a second.
    pub(crate) fn step(&mut self, chooses: Chooses<'_>) {
        let mut slice = self.rounds.slice();
        while let Some(tgid) = slice.next() {
            let (tids, listed) = slice.threads(tgid, chooses);
            if let Some(listed) = listed {
                self.threads
                    .retain(|(of, tid), _| *of != tgid || listed.contains(tid));
            }
            let now_ns = monotonic_ns();
            for tid in tids {
                let thread = self.threads.entry((tgid, tid)).or_default();
                thread.look_again(tgid, tid, now_ns);
                if !thread.seen.is_empty()
                    && let Entry::Vacant(entry) = self.names.entry(tgid)
                    && let Some(name) = comm_of(tgid)
                {
                    entry.insert(name);
                }
            }
        }
        slice.end();
    }

    /// Ends an interval and begins the next. Threads of a choice are there, too, that did not move in all of it, though what they wait
    /// for be no lock.
    pub(crate) fn take(&mut self, filter: &Filter) -> Waits {
        let shows_still = filter.is_choice();
        let counts: Counts<'_> = &|tgid, until_ns| filter.count_of(tgid, until_ns);
        let looked = self.threads.iter().filter(|(_, thread)| thread.looks > 0);
        let not_looked_at = self
            .rounds
            .not_looked_at(looked.map(|((tgid, _), _)| *tgid), counts);
        let looks = self.rounds.looks();
        let mut sums: HashMap<Kind, (f64, HashSet<u32>)> = HashMap::new();
        for ((tgid, tid), thread) in &self.threads {
            let looks = self.rounds.looks_at(*tgid).unwrap_or(thread.looks).max(1);
            for (blocked, times, is_busy) in thread.judged(shows_still) {
                let is_undecided = shows_still && thread.comes_back_to_futex(&blocked);
                if !is_busy && !is_undecided {
                    continue;
                }
                let is_lock = is_lock(&blocked);
                let sum = sums.entry((*tgid, blocked.wait.reason(), is_lock, is_busy));
                let sum = sum.or_default();
                sum.0 += times as f64 / looks as f64;
                sum.1.insert(*tid);
            }
        }
        let (mut rows, mut undecided) = (Vec::new(), Vec::new());
        for ((tgid, reason, is_lock, is_busy), (at_a_time, tids)) in sums {
            // It may have become another program since.
            let name = comm_of(tgid).or_else(|| self.names.get(&tgid).cloned());
            let list = if is_busy { &mut rows } else { &mut undecided };
            list.push(Waiting {
                tgid,
                comm: name.unwrap_or_else(|| "[exited]".into()),
                reason,
                is_lock,
                threads: tids.len() as u64,
                at_a_time,
            });
        }
        let rounds = &self.rounds;
        self.threads.retain(|(tgid, _), thread| {
            let may_be_there = thread.begin_interval() || rounds.may_miss_threads_of(*tgid);
            may_be_there && rounds.knows(*tgid)
        });
        self.names.retain(|tgid, _| rounds.knows(*tgid));
        self.rounds.begin_interval();
        for list in [&mut rows, &mut undecided] {
            list.rank_by(|a, b| {
                let key = |row: &Waiting| (Reverse(row.tgid), row.reason, row.is_lock);
                b.at_a_time
                    .total_cmp(&a.at_a_time)
                    .then_with(|| key(a).cmp(&key(b)))
            });
        }
        Waits {
            looks,
            not_looked_at,
            rows,
            undecided,
        }
    }
}

impl Thread {
    fn look_again(&mut self, tgid: u32, tid: u32, now_ns: u64) {
        let slices = slices_of(tgid, tid);
        let found = match self.now {
            // It has not run since.
            Some(blocked) if slices > 0 && slices == self.slices => Some(blocked),
            _ => calls::of(tgid, tid),
        };
        self.look(slices, now_ns, found);
    }

    fn look(&mut self, slices: u64, now_ns: u64, found: Option<Blocked>) {
        let got = slices.saturating_sub(self.slices) as f64;
        let passed_s = now_ns.saturating_sub(self.looked_ns) as f64 / 1e9;
        let is_first = self.looked_ns == 0;
        let has_moved = !is_first && (slices == 0 || got > 0.0 || found.is_none());
        self.looks += 1;
        self.moves += u64::from(has_moved);
        let is_brisk = !is_first && got > BRISK * passed_s;
        (self.slices, self.looked_ns, self.now) = (slices, now_ns, found);
        let Some(blocked) = found else {
            return;
        };
        let is_full = self.seen.len() >= MOST_KINDS;
        let is_same = |seen: &Seen| match is_full {
            true => seen.blocked.wait == blocked.wait,
            false => seen.blocked == blocked,
        };
        let mut same = self.seen.iter_mut();
        match same.find(|seen| is_same(seen) && seen.is_brisk == is_brisk) {
            Some(seen) => seen.times += 1,
            None if is_full => {}
            None => self.seen.push(Seen {
                blocked,
                is_brisk,
                times: 1,
            }),
        }
    }

    /// Forgets what it was seen in; tells if it was looked at.
    fn begin_interval(&mut self) -> bool {
        let may_be_there = self.looks > 0;
        self.seen.clear();
        (self.looks, self.moves) = (0, 0);
        may_be_there
    }

    /// Looks whether it waits there for a futex that may be for work, as often as it has something to do.
    fn comes_back_to_futex(&self, blocked: &Blocked) -> bool {
        let is_futex = blocked.wait.reason() == Reason::Futex && blocked.wait.may_be_idle();
        is_futex && self.moves >= LEAST_MOVES
    }

    /// The waits, how often each was seen, and whether it is not idle.
    fn judged(&self, shows_still: bool) -> impl Iterator<Item = (Blocked, u64, bool)> {
        // Stacks grow down. Where a thread comes back to between all else that it does, it waits for work.
        let is_busy = move |seen: &Seen| {
            let Blocked { wait, stack } = seen.blocked;
            let mut others = self.seen.iter().map(|seen| seen.blocked.stack);
            let has_deeper = others.clone().any(|other| is_deeper(other, stack));
            let is_home = !others.any(|other| is_deeper(stack, other));
            match wait.reason() {
                Reason::Sleep => false,
                _ if is_lock(&seen.blocked) => true,
                Reason::BlockIo | Reason::PageFault => true,
                _ if wait.may_be_idle() => seen.is_brisk || !is_home,
                // Its client, if it does more with what it gets than wait here again.
                Reason::Socket | Reason::Pipe if is_home && has_deeper => false,
                // A shell's pipeline: its trouble, if any, is whoever writes.
                Reason::Pipe if wait.reads_pipe() && !shows_still && self.seen.len() == 1 => {
                    seen.is_brisk
                }
                _ => self.moves >= LEAST_MOVES || shows_still,
            }
        };
        let all = self.seen.iter();
        all.map(move |seen| (seen.blocked, seen.times, is_busy(seen)))
    }
}

fn is_deeper(stack: u64, other: u64) -> bool {
    other
        .checked_sub(stack)
        .is_some_and(|bytes| (DEEPER..ANOTHER).contains(&bytes))
}

/// Looks whether it is a lock for sure, or a semaphore.
fn is_lock(blocked: &Blocked) -> bool {
    match blocked.wait.reason() {
        Reason::Futex => !blocked.wait.may_be_idle(),
        reason => matches!(reason, Reason::Lock | Reason::FileLock | Reason::Semaphore),
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
