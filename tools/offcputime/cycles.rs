//! Pieces of work: from where a thread waits for work, its home, until it waits there again.
//!
//! A piece begins when a thread is woken at its home, and ends when it leaves its CPU there again; or it begins and ends where functions
//! are called. Of all pieces of a home there are sums by how long they took: which of them are slow is known at the end, and what those
//! waited for then, too.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use budget::Bounded;
use host::task::comm_text;
use profile::losses::Losses;

use crate::offcputime::on_cpu::{OnCpu, Samples};
use crate::offcputime::pieces::{Cycle, Pieces, Room, Spot, Time};

/// Most threads, and sums of waits by place and by how long their piece took.
const MOST_THREADS: usize = 1 << 16;
const MOST_PARTS: usize = 1 << 17;
/// The same of samples, whose stacks have many leaves.
const MOST_SAMPLED_PARTS: usize = 1 << 17;
/// Most homes.
const MOST_HOMES: usize = 1 << 12;

/// The kind of a home that is none, but where marks begin and end work.
pub(crate) const MARKED: &str = "function";

/// A home: whose it is, the kind of its wait, and the program's function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Home {
    pub(crate) tgid: u32,
    pub(crate) kind: &'static str,
    pub(crate) place: Option<Arc<str>>,
}

/// A wait that is over, or one that the window's end cuts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Number of its row.
    pub(crate) row: u32,
    /// Counts its thread's waits.
    pub(crate) number: u32,
    pub(crate) off_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) runqueue_ns: u64,
}

/// A function's call or return that begins or ends a piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) time_ns: u64,
    /// Counts its thread's marks.
    pub(crate) number: u32,
    /// The number of its thread's last wait.
    pub(crate) waits: u32,
    pub(crate) is_end: bool,
    /// Another call's end: the one that began the piece was left by an exception.
    pub(crate) is_other: bool,
}

/// A thread in a window.
struct Thread {
    /// The number that its next wait has.
    next: u32,
    /// Its first wait began then, ns, and was at home.
    at_home_since_ns: Option<u64>,
    has_come_home: bool,
    /// The home that it left, and the piece of work that it is at; `None`: it is not known where that began.
    work: Option<(u32, Cycle)>,
    /// The number that its next mark has, once it had one.
    next_mark: Option<u32>,
    /// Its last wait, which had begun then, ns.
    last: Option<(u64, Spot, Time)>,
}

impl Thread {
    fn new(next: u32) -> Self {
        Self {
            next,
            at_home_since_ns: None,
            has_come_home: false,
            work: None,
            next_mark: None,
            last: None,
        }
    }

    /// Looks whether numbers have begun anew: another thread has its ID, or it has become a target again.
    fn is_another(&self, number: u32) -> bool {
        number < self.next
    }
}

/// The thread, its place, and the number of its home, if it is one.
pub(crate) struct Where<'a> {
    pub(crate) tid: u32,
    pub(crate) comm: &'a Arc<str>,
    pub(crate) spot: Spot,
    pub(crate) home: Option<u32>,
}

/// Everything that is known of pieces of work.
pub(crate) struct Work {
    threads: Bounded<(u32, u32), Thread>,
    numbers: HashMap<Home, u32>,
    homes: Vec<(Home, Pieces)>,
    room: Room,
    /// Pieces that an edge of a window, or their thread's end, has cut, by process.
    cut: HashMap<u32, u64>,
    /// Pieces of which waits were lost.
    broken: u64,
    /// Samples that no piece has yet.
    samples: Samples,
    /// Waits of threads, homes and places that found no room.
    homeless: u64,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            threads: Bounded::new(MOST_THREADS),
            numbers: HashMap::new(),
            homes: Vec::new(),
            room: Room {
                waits: MOST_PARTS,
                samples: MOST_SAMPLED_PARTS,
                left_out: 0,
            },
            cut: HashMap::new(),
            broken: 0,
            samples: Samples::default(),
            homeless: 0,
        }
    }
}

impl Work {
    /// A home's number; `None` where there is no room for it.
    pub(crate) fn home(&mut self, home: Home) -> Option<u32> {
        if let Some(number) = self.numbers.get(&home) {
            return Some(*number);
        }
        let number = u32::try_from(self.homes.len()).ok()?;
        if self.homes.len() >= MOST_HOMES {
            self.homeless += 1;
            return None;
        }
        self.numbers.insert(home.clone(), number);
        self.homes.push((home, Pieces::default()));
        Some(number)
    }

    /// Goes on by a wait of a thread; they come in their order.
    pub(crate) fn add(&mut self, told: &Told, at: &Where<'_>) {
        let first = || Thread {
            at_home_since_ns: at.home.map(|_| told.off_ns),
            ..Thread::new(told.number)
        };
        let Some(thread) = self.threads.entry((at.spot.tgid, at.tid), first) else {
            self.homeless += 1;
            return;
        };
        if thread.is_another(told.number) {
            *self.cut.entry(at.spot.tgid).or_default() += u64::from(thread.work.is_some());
            *thread = first();
        }
        if thread.next != told.number {
            self.broken += u64::from(thread.work.take().is_some());
        }
        thread.next = told.number.wrapping_add(1);
        let mut time = Time {
            blocked_ns: (told.end_ns - told.off_ns.min(told.end_ns))
                .saturating_sub(told.runqueue_ns),
            runqueue_ns: told.runqueue_ns,
        };
        let mut done = None;
        if let Some(home) = at.home {
            thread.has_come_home = true;
            // It was woken then.
            let begin_ns = told.end_ns.saturating_sub(told.runqueue_ns);
            let begun = Cycle::begin((at.spot.tgid, at.tid), Arc::clone(at.comm), begin_ns);
            done = thread.work.replace((home, begun));
            time.blocked_ns = 0;
        }
        thread.last = Some((told.off_ns, at.spot, time));
        if let Some((_, cycle)) = &mut thread.work
            && time.ns() > 0
            && !cycle.add(at.spot, time)
        {
            thread.work = None;
            self.homeless += 1;
        }
        if let Some((home, mut cycle)) = done {
            cycle.ns = told.off_ns.saturating_sub(cycle.begin_ns);
            self.finish_piece(home, cycle);
        }
    }

    /// Goes on by a mark of a thread; they come in their order among its waits. `home`: the number of what all marks stand for.
    pub(crate) fn mark(&mut self, mark: &Mark, home: u32) {
        let next = mark.waits.wrapping_add(1);
        let who = (mark.tgid, mark.tid);
        let Some(thread) = self.threads.entry(who, || Thread::new(next)) else {
            self.homeless += 1;
            return;
        };
        let cut = self.cut.entry(mark.tgid).or_default();
        // A thread may tell its next wait before a mark.
        if thread.is_another(next.wrapping_add(1)) {
            *cut += u64::from(thread.work.is_some());
            *thread = Thread::new(next);
        }
        let is_overtaken = thread.next == next.wrapping_add(1);
        let is_in_order = thread.next == next || is_overtaken;
        if !is_in_order || thread.next_mark.is_some_and(|next| next != mark.number) {
            self.broken += u64::from(thread.work.take().is_some());
        }
        if !is_overtaken {
            thread.next = next;
        }
        let is_first = thread.next_mark.is_none();
        thread.next_mark = Some(mark.number.wrapping_add(1));
        // It lost its CPU after it had looked at the clock.
        let last = thread.last.filter(|(off_ns, ..)| *off_ns >= mark.time_ns);
        let mut done = thread.work.take();
        if let (Some((_, cycle)), Some((_, spot, time))) = (&mut done, last) {
            cycle.take(spot, time);
        }
        if !mark.is_end {
            let mut begun = Cycle::begin(who, comm_text(&mark.comm), mark.time_ns);
            if let Some((_, spot, time)) = last {
                begun.add(spot, time);
            }
            thread.work = Some((home, begun));
        }
        match done {
            Some((home, mut cycle)) if mark.is_end && !mark.is_other => {
                cycle.ns = mark.time_ns.saturating_sub(cycle.begin_ns);
                self.finish_piece(home, cycle);
            }
            Some(_) => *cut += 1,
            // It had begun before the window.
            None if mark.is_end && is_first => *cut += 1,
            None => {}
        }
    }

    /// A sample of a thread; they come before the waits around them are added.
    pub(crate) fn sample(&mut self, sample: OnCpu) {
        self.samples.add(sample);
    }

    /// All waits have been added that ended before then.
    pub(crate) fn forget_samples(&mut self, until_ns: u64) {
        let begun_ns = |thread: &(u32, u32)| {
            let (_, cycle) = self.threads.get(thread)?.work.as_ref()?;
            Some(cycle.begin_ns.min(until_ns))
        };
        self.samples.forget(until_ns, begun_ns);
    }

    fn finish_piece(&mut self, home: u32, mut cycle: Cycle) {
        let thread = (cycle.tgid, cycle.tid);
        let end_ns = cycle.begin_ns + cycle.ns;
        cycle.samples = self.samples.take(thread, cycle.begin_ns, end_ns);
        if let Some((_, pieces)) = self.homes.get_mut(home as usize) {
            self.homeless += pieces.add(cycle, &mut self.room);
        }
    }

    /// A window is over: what threads do after it is not known. Waits that its end cut have been added.
    pub(crate) fn cut(&mut self, start_ns: u64, end_ns: u64) {
        for ((tgid, _), thread) in self.threads.drain() {
            if thread.next_mark.is_some() {
                *self.cut.entry(tgid).or_default() += u64::from(thread.work.is_some());
                continue;
            }
            if !thread.has_come_home {
                continue;
            }
            let was_home = thread.at_home_since_ns.is_some_and(|ns| ns <= start_ns);
            let at_work = thread
                .work
                .is_some_and(|(_, cycle)| cycle.begin_ns < end_ns);
            *self.cut.entry(tgid).or_default() += u64::from(!was_home) + u64::from(at_work);
        }
    }

    /// All of it, at the end. `rows_full`: rows that found no room before.
    pub(crate) fn finish(self, rows_full: u64) -> Found {
        Found {
            homes: self.homes,
            marked: None,
            cut: self.cut,
            broken: self.broken,
            homeless: self.homeless + rows_full,
            sampled_nowhere: self.room.left_out,
        }
    }
}

/// Findings about pieces of work in the end.
#[derive(Debug, Default)]
pub struct Found {
    pub(crate) homes: Vec<(Home, Pieces)>,
    /// The functions that tell pieces, in words, where homes do not.
    pub(crate) marked: Option<Arc<str>>,
    cut: HashMap<u32, u64>,
    /// Pieces of which waits were lost.
    pub(crate) broken: u64,
    homeless: u64,
    /// Samples that found no room.
    sampled_nowhere: u64,
}

impl Found {
    /// Those of some processes.
    pub(crate) fn retain(&mut self, tgids: &BTreeSet<u32>) {
        self.homes.retain(|(home, _)| tgids.contains(&home.tgid));
        self.cut.retain(|tgid, _| tgids.contains(tgid));
    }

    /// Pieces that an edge of a window, or their thread's end, has cut.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.values().sum()
    }

    /// Counts of those that are missing.
    pub(crate) fn count_losses(&self, losses: &mut Losses) {
        let homeless = "parts of work cycles: no room";
        losses.count("cycles_homeless", homeless, self.homeless);
        let nowhere = "samples of work cycles: no room";
        losses.count("cycles_unsampled", nowhere, self.sampled_nowhere);
        losses.count(
            "cycles_broken",
            "work cycles: a wait or a call lost",
            self.broken,
        );
    }
}

#[cfg(test)]
#[path = "cycles_tests.rs"]
mod tests;
