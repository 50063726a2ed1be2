//! Pieces of work: their sums by how long they took, and the longest of all with their waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hist::{Histogram, bucket};

use crate::offcputime::on_cpu::Ran;
use crate::offcputime::row::{Row, WaitKey};

/// Most places of one piece that are told apart, and of them by the files and connections that their waits are for.
const MOST_STEPS: usize = 256;
const MOST_OF_ENDPOINTS: usize = MOST_STEPS / 2;
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
    /// The file or connection that it is for, by its number; 0: none.
    pub(crate) endpoint: u64,
}

impl Spot {
    /// The place alone.
    pub(crate) fn without_endpoint(self) -> Self {
        Self {
            endpoint: 0,
            ..self
        }
    }
}

/// The place of a row.
pub(crate) fn spot(row: &Row) -> Spot {
    Spot {
        tgid: row.task.tgid,
        wait: row.wait.into(),
        user: row.user,
        kernel: row.kernel,
        endpoint: row.endpoint,
    }
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
    /// Samples by place, once it is over.
    pub(crate) samples: HashMap<Ran, u64>,
}

impl Cycle {
    /// One that begins.
    pub(super) fn begin((tgid, tid): (u32, u32), comm: Arc<str>, begin_ns: u64) -> Self {
        Self {
            begin_ns,
            ns: 0,
            tgid,
            tid,
            comm,
            steps: Vec::new(),
            samples: HashMap::new(),
        }
    }

    /// Adds a wait; `false`: it was in too many places.
    pub(super) fn add(&mut self, spot: Spot, time: Time) -> bool {
        match self.step(spot) {
            Some(at) => self.steps[at].1.add(time),
            None if self.steps.len() < MOST_OF_ENDPOINTS => self.steps.push((spot, time)),
            None if spot.endpoint != 0 => return self.add(spot.without_endpoint(), time),
            None if self.steps.len() < MOST_STEPS => self.steps.push((spot, time)),
            None => return false,
        }
        true
    }

    /// The number of the step in a place. Those that come again were met lately.
    fn step(&self, spot: Spot) -> Option<usize> {
        self.steps.iter().rposition(|(same, _)| *same == spot)
    }

    /// Takes away a wait that was added.
    pub(super) fn take(&mut self, spot: Spot, time: Time) {
        let at = self
            .step(spot)
            .or_else(|| self.step(spot.without_endpoint()));
        if let Some((_, sum)) = at.map(|at| &mut self.steps[at]) {
            sum.blocked_ns = sum.blocked_ns.saturating_sub(time.blocked_ns);
            sum.runqueue_ns = sum.runqueue_ns.saturating_sub(time.runqueue_ns);
        }
    }
}

/// Pieces of about one length: those of a bucket of the histogram.
#[derive(Debug, Default)]
pub(crate) struct Length {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) waits: BTreeMap<Spot, Time>,
    /// Samples by place.
    pub(crate) samples: BTreeMap<Ran, u64>,
}

/// Sums by place that there is room for, and samples that found none.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) waits: usize,
    pub(crate) samples: usize,
    pub(crate) left_out: u64,
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
    /// Adds one; `room`: sums that there is room for. Returns how many waits' found none.
    pub(crate) fn add(&mut self, cycle: Cycle, room: &mut Room) -> u64 {
        self.histogram.record(cycle.ns);
        let length = self.lengths.entry(bucket(cycle.ns)).or_default();
        length.count += 1;
        length.ns = length.ns.saturating_add(cycle.ns);
        let mut homeless = 0;
        for (spot, time) in &cycle.steps {
            match length.waits.get_mut(spot) {
                Some(sum) => sum.add(*time),
                None if room.waits > 0 => {
                    room.waits -= 1;
                    length.waits.insert(*spot, *time);
                }
                None => homeless += 1,
            }
        }
        for (ran, count) in &cycle.samples {
            match length.samples.get_mut(ran) {
                Some(sum) => *sum += count,
                None if room.samples > 0 => {
                    room.samples -= 1;
                    length.samples.insert(*ran, *count);
                }
                None => room.left_out += count,
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
            for (ran, count) in &other.samples {
                *length.samples.entry(*ran).or_default() += count;
            }
        }
        for cycle in &others.longest {
            self.keep(cycle.clone());
        }
    }
}
