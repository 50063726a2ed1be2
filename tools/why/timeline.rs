//! Resources of the machine by tenths of a second: when they were short, and for how long.

use std::collections::{BTreeMap, HashMap};

use host::utilisation::{Snapshot, Use};
use serde_json::{Value, json};

/// Shortest time of a moment, ns.
const STEP_NS: u64 = 100_000_000;

/// Most moments of a window; of more, two become one.
const MOST: usize = 600;

/// Moments of a window, in their order.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Counters at the last moment's end, or at the begin.
    last: Option<Snapshot>,
    moments: Vec<Moment>,
    /// Times that two moments became one: each doubles their length.
    doublings: u32,
}

/// A piece of the window, and what there was in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    /// `CLOCK_MONOTONIC`.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Share of all CPUs' time, 0 to 1: busy, and of that taken by the hypervisor.
    pub(crate) busy: f64,
    pub(crate) stolen: f64,
    /// Share of the time in which each disk had requests in flight.
    pub(crate) disks: BTreeMap<String, f64>,
    /// Memory that was read again, for there had been no room to keep it, bytes.
    pub(crate) refaulted_bytes: u64,
    /// Samples that were taken of each process.
    pub(crate) samples: HashMap<u32, u64>,
}

impl Moment {
    pub(crate) fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    fn new([start_ns, end_ns]: [u64; 2], usage: Use, samples: HashMap<u32, u64>) -> Self {
        let disks = usage.disks.into_iter();
        let disks = disks.map(|disk| (disk.name, disk.busy_percent / 100.0));
        Self {
            start_ns,
            end_ns,
            busy: usage.busy_percent / 100.0,
            stolen: usage.steal_percent / 100.0,
            disks: disks.filter(|(_, busy)| *busy > 0.0).collect(),
            refaulted_bytes: usage.refaulted_bytes,
            samples,
        }
    }

    /// This one and the next as one.
    fn and(mut self, next: Self) -> Self {
        let (ns, more_ns) = (self.ns() as f64, next.ns() as f64);
        let of_both =
            |share: f64, more: f64| (share * ns + more * more_ns) / (ns + more_ns).max(1.0);
        self.end_ns = next.end_ns;
        self.busy = of_both(self.busy, next.busy);
        self.stolen = of_both(self.stolen, next.stolen);
        for (name, busy) in &mut self.disks {
            *busy = of_both(*busy, next.disks.get(name).copied().unwrap_or(0.0));
        }
        for (name, busy) in next.disks {
            self.disks.entry(name).or_insert(of_both(0.0, busy));
        }
        self.refaulted_bytes += next.refaulted_bytes;
        for (tgid, samples) in next.samples {
            *self.samples.entry(tgid).or_default() += samples;
        }
        self
    }
}

impl Timeline {
    /// Tells if a moment is over.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        let least_ns = STEP_NS << self.doublings;
        let passed_ns = |last: &Snapshot| now_ns.saturating_sub(last.time_ns());
        self.last
            .as_ref()
            .is_none_or(|last| passed_ns(last) >= least_ns)
    }

    /// Ends a moment now. `samples`: of each process, until some time, those that no moment has.
    pub(crate) fn add(&mut self, samples: impl FnOnce(u64) -> HashMap<u32, u64>) {
        let now = Snapshot::take();
        let samples = samples(now.time_ns());
        let Some(last) = self.last.replace(now.clone()) else {
            // The time before is no moment of the window.
            return;
        };
        let edges = [last.time_ns(), now.time_ns()];
        self.push(Moment::new(edges, now.since(&last), samples));
    }

    fn push(&mut self, moment: Moment) {
        self.moments.push(moment);
        if self.moments.len() < MOST {
            return;
        }
        self.doublings += 1;
        let mut all = std::mem::take(&mut self.moments).into_iter();
        while let Some(first) = all.next() {
            let both = match all.next() {
                Some(second) => first.and(second),
                None => first,
            };
            self.moments.push(both);
        }
    }

    /// All moments of a window that ended at `end_ns`. The last one may have been looked at later, and a short one is part of the one
    /// before.
    pub(crate) fn take(&mut self, end_ns: u64) -> Vec<Moment> {
        let mut moments = std::mem::take(&mut self.moments);
        moments.retain(|moment| moment.start_ns < end_ns);
        if let Some(last) = moments.last_mut() {
            last.end_ns = last.end_ns.min(end_ns);
        }
        let is_short = |moment: &mut Moment| moment.ns() < STEP_NS;
        if moments.len() > 1
            && let Some(short) = moments.pop_if(is_short)
            && let Some(last) = moments.pop()
        {
            moments.push(last.and(short));
        }
        moments
    }
}

/// Moments for programs. `cpus`: the CPUs that the processes had which the answer is about, if that is known.
pub(crate) fn to_json(moments: &[Moment], cpus: impl Fn(&Moment) -> Option<f64>) -> Value {
    let one = |moment: &Moment| {
        json!({
            "start_ns": moment.start_ns,
            "end_ns": moment.end_ns,
            "cpus_busy": moment.busy,
            "cpus_stolen": moment.stolen,
            "on_cpus": cpus(moment),
            "disks_busy": moment.disks,
            "refaulted_bytes": moment.refaulted_bytes,
        })
    };
    moments.iter().map(one).collect()
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
