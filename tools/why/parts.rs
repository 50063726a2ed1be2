//! A wait's time by what it was for: locks, work, and neither.

use profile::model::Sample;

use crate::why::kinds::{IDLE, Place, Spot};
use crate::why::locks::Split;

/// A part of a wait's time.
pub(super) struct Part {
    pub(super) spot: Spot,
    pub(super) ns: u64,
    /// All of the sample's waits, in the largest part; else 0.
    pub(super) count: u64,
    pub(super) is_idle: bool,
}

impl Split {
    /// The parts of a sample's time `ns`, which went by at a place.
    pub(super) fn divide(&self, sample: &Sample, at: &Place, ns: u64) -> Vec<Part> {
        let part = |spot: Spot, ns, is_idle| Part {
            spot,
            ns,
            count: 0,
            is_idle,
        };
        let (locks, work_ns) = match sample.idle {
            true => (Vec::new(), 0),
            false => (self.parts(sample, at, ns), self.for_work(sample, at, ns)),
        };
        let of_locks: u64 = locks.iter().map(|(_, ns)| ns).sum();
        let work_ns = work_ns.min(ns - of_locks);
        let locks = locks.into_iter();
        let locks = locks.map(|(lock, ns)| part((at.clone(), Some(lock)), ns, false));
        let work = part(((IDLE, None), None), work_ns, true);
        let rest = part((at.clone(), None), ns - of_locks - work_ns, sample.idle);
        let parts = locks.chain([work, rest]);
        let mut parts: Vec<Part> = parts.filter(|part| part.ns > 0).collect();
        if let Some(largest) = parts.iter_mut().max_by_key(|part| part.ns) {
            largest.count = sample.count;
        }
        parts
    }
}
