//! Pieces of work: from where a thread waits for work, its home, until it waits there again.
//!
//! A piece begins when a thread is woken at its home, and ends when it leaves its CPU there again. Of all pieces of a home there are
//! sums by how long they took: which of them are slow is known at the end, and what those waited for then, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use budget::Bounded;
use hist::{Histogram, bucket};
use host::waits::Wait;
use profile::losses::Losses;

use crate::offcputime::row::Row;

/// Most threads, and sums of waits by place and by how long their piece took.
const MOST_THREADS: usize = 1 << 16;
const MOST_PARTS: usize = 1 << 17;
/// Most homes.
const MOST_HOMES: usize = 1 << 12;
/// Most places of one piece that are told apart.
const MOST_STEPS: usize = 256;
/// Pieces that are kept with all their waits.
const EXEMPLARS: usize = 5;

/// A place where threads of a process wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) tgid: u32,
    pub(crate) wait: WaitKey,
    /// Stacks' ids.
    pub(crate) user: u64,
    pub(crate) kernel: u64,
}

/// A wait in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitKey(i16, u8, u8, u32, u8);

impl From<Wait> for WaitKey {
    fn from(wait: Wait) -> Self {
        let Wait {
            flags,
            syscall,
            file_type,
            futex_op,
            futex_value,
        } = wait;
        Self(syscall, file_type, futex_op, futex_value, flags)
    }
}

/// The place of a row.
pub(crate) fn spot(row: &Row) -> Spot {
    Spot {
        tgid: row.task.tgid,
        wait: row.wait.into(),
        user: row.user,
        kernel: row.kernel,
    }
}

/// A home: whose it is, the kind of its wait, and the program's function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Home {
    pub(crate) tgid: u32,
    pub(crate) kind: &'static str,
    pub(crate) place: Option<Arc<str>>,
}

/// Time of waits in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) blocked_ns: u64,
    pub(crate) runqueue_ns: u64,
}

impl Time {
    pub(crate) fn ns(self) -> u64 {
        self.blocked_ns.saturating_add(self.runqueue_ns)
    }

    fn add(&mut self, other: Self) {
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        self.runqueue_ns = self.runqueue_ns.saturating_add(other.runqueue_ns);
    }
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    /// `CLOCK_MONOTONIC`.
    pub(crate) begin_ns: u64,
    pub(crate) ns: u64,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Arc<str>,
    /// Waits by place, in the order in which they were first met.
    pub(crate) steps: Vec<(Spot, Time)>,
}

impl Cycle {
    fn add(&mut self, spot: Spot, time: Time) -> bool {
        // Those that come again were met lately.
        match self.steps.iter().rposition(|(same, _)| *same == spot) {
            Some(at) => self.steps[at].1.add(time),
            None if self.steps.len() < MOST_STEPS => self.steps.push((spot, time)),
            None => return false,
        }
        true
    }
}

/// Pieces of about one length: those of a bucket of the histogram.
#[derive(Debug, Default)]
pub(crate) struct Length {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) waits: BTreeMap<Spot, Time>,
}

/// All pieces of one home.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// By the buckets that their lengths are in.
    pub(crate) lengths: BTreeMap<usize, Length>,
    pub(crate) histogram: Histogram,
    /// The longest first.
    pub(crate) longest: Vec<Cycle>,
}

impl Pieces {
    /// Adds one; `left`: places that there is room for. Returns how many found none.
    pub(crate) fn add(&mut self, cycle: Cycle, left: &mut usize) -> u64 {
        self.histogram.record(cycle.ns);
        let length = self.lengths.entry(bucket(cycle.ns)).or_default();
        length.count += 1;
        length.ns = length.ns.saturating_add(cycle.ns);
        let mut homeless = 0;
        for (spot, time) in &cycle.steps {
            match length.waits.get_mut(spot) {
                Some(sum) => sum.add(*time),
                None if *left > 0 => {
                    *left -= 1;
                    length.waits.insert(*spot, *time);
                }
                None => homeless += 1,
            }
        }
        self.keep(cycle);
        homeless
    }

    fn keep(&mut self, cycle: Cycle) {
        let is_longer = |least: &Cycle| least.ns < cycle.ns;
        if self.longest.len() < EXEMPLARS || self.longest.last().is_some_and(is_longer) {
            let at = self.longest.partition_point(|other| other.ns >= cycle.ns);
            self.longest.insert(at, cycle);
            self.longest.truncate(EXEMPLARS);
        }
    }

    /// Adds those of the same home of another process.
    pub(crate) fn merge(&mut self, others: &Self) {
        self.histogram.merge(&others.histogram);
        for (bucket, other) in &others.lengths {
            let length = self.lengths.entry(*bucket).or_default();
            length.count += other.count;
            length.ns = length.ns.saturating_add(other.ns);
            for (spot, time) in &other.waits {
                length.waits.entry(*spot).or_default().add(*time);
            }
        }
        for cycle in &others.longest {
            self.keep(cycle.clone());
        }
    }
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

/// A thread in a window.
struct Thread {
    /// The number that its next wait has.
    next: u32,
    /// Its first wait began then, ns, and was at home.
    at_home_since_ns: Option<u64>,
    has_come_home: bool,
    /// The home that it left, and the piece of work that it is at; `None`: it is not known where that began.
    work: Option<(u32, Cycle)>,
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
    /// Sums that there is room for.
    room: usize,
    /// Pieces that an edge of a window, or their thread's end, has cut, by process.
    cut: HashMap<u32, u64>,
    /// Pieces of which waits were lost.
    broken: u64,
    /// Waits of threads, homes and places that found no room.
    homeless: u64,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            threads: Bounded::new(MOST_THREADS),
            numbers: HashMap::new(),
            homes: Vec::new(),
            room: MOST_PARTS,
            cut: HashMap::new(),
            broken: 0,
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
            next: told.number,
            at_home_since_ns: at.home.map(|_| told.off_ns),
            has_come_home: false,
            work: None,
        };
        let Some(thread) = self.threads.entry((at.spot.tgid, at.tid), first) else {
            self.homeless += 1;
            return;
        };
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
            let begun = Cycle {
                begin_ns: told.end_ns.saturating_sub(told.runqueue_ns),
                ns: 0,
                tgid: at.spot.tgid,
                tid: at.tid,
                comm: Arc::clone(at.comm),
                steps: Vec::new(),
            };
            done = thread.work.replace((home, begun));
            time.blocked_ns = 0;
        }
        if let Some((_, cycle)) = &mut thread.work
            && time.ns() > 0
            && !cycle.add(at.spot, time)
        {
            thread.work = None;
            self.homeless += 1;
        }
        if let Some((home, mut cycle)) = done
            && let Some((_, pieces)) = self.homes.get_mut(home as usize)
        {
            cycle.ns = told.off_ns.saturating_sub(cycle.begin_ns);
            self.homeless += pieces.add(cycle, &mut self.room);
        }
    }

    /// A window is over: what threads do after it is not known. Waits that its end cut have been added.
    pub(crate) fn cut(&mut self, start_ns: u64, end_ns: u64) {
        for ((tgid, _), thread) in self.threads.drain() {
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
            cut: self.cut,
            broken: self.broken,
            homeless: self.homeless + rows_full,
        }
    }
}

/// Findings about pieces of work in the end.
#[derive(Debug, Default)]
pub struct Found {
    pub(crate) homes: Vec<(Home, Pieces)>,
    cut: HashMap<u32, u64>,
    /// Pieces of which waits were lost.
    pub(crate) broken: u64,
    homeless: u64,
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
        losses.count("cycles_broken", "work cycles: a wait lost", self.broken);
    }
}

#[cfg(test)]
#[path = "cycles_tests.rs"]
mod tests;
