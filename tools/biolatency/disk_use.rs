//! What one disk did in an interval.

use std::collections::HashMap;

use bpf::biolatency::types::{disk_epoch, disk_sum};

use crate::biolatency::disks::{Completed, Stat};

/// Counts of one disk's requests of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// From start to completion, all together.
    pub(crate) total_ns: u64,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) class: usize,
    pub(crate) status: i32,
    pub(crate) count: u64,
}

/// One disk's interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskUse {
    pub(crate) name: String,
    pub(crate) dev: u32,
    /// Tells disks apart that have no number: those that are hidden.
    pub(crate) address: u64,
    /// In the order of [`CLASSES`].
    pub(crate) classes: [Class; CLASSES.len()],
    pub(crate) partial: u64,
    pub(crate) requeued: u64,
    pub(crate) failures: Vec<Failures>,
    /// With any of these requests under way, at least.
    pub(crate) busy_ns: u64,
    /// Of the whole disk, whoever uses it; `None` when the kernel does not count.
    pub(crate) whole: Option<Whole>,
}

/// The kernel's own account of a disk's interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) busy_ns: u64,
    pub(crate) merged: u64,
    /// At the end.
    pub(crate) in_flight: u64,
}

/// Words for `enum request_class`.
pub(crate) const CLASSES: [&str; 5] = ["read", "write", "discard", "flush", "passthrough"];

/// The same for people, of many.
pub(crate) const PLURALS: [&str; 5] = ["reads", "writes", "discards", "flushes", "driver commands"];

/// Index into [`CLASSES`].
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;
pub(crate) const DISCARD: usize = 2;
pub(crate) const FLUSH: usize = 3;
pub(crate) const PASSTHROUGH: usize = 4;

impl Class {
    pub(crate) fn completed(&self) -> Completed {
        Completed {
            requests: self.requests,
            bytes: self.bytes,
        }
    }
}

impl DiskUse {
    /// Ours, which completions tell; while something is under way the kernel's, in ticks of its clock, if that is more.
    pub(crate) fn busy_ns(&self, wall_ns: u64) -> u64 {
        let open = self.whole.filter(|whole| whole.in_flight > 0);
        let kernels = open.map_or(0, |whole| whole.busy_ns);
        self.busy_ns.max(kernels).min(wall_ns)
    }

    /// Requests between start and completion, on the average.
    pub(crate) fn queue_length(&self, wall_ns: u64) -> f64 {
        // Flushes are the parts of sequences, which are there as writes already.
        let total_ns: u64 = self
            .classes
            .iter()
            .take(3)
            .map(|class| class.total_ns)
            .sum();
        total_ns as f64 / wall_ns as f64
    }
}

/// The parts of all CPUs; without a name.
pub(crate) fn add_up(key: &disk_epoch, cpus: &[disk_sum]) -> DiskUse {
    let mut sum = DiskUse {
        dev: key.dev,
        address: key.disk,
        ..DiskUse::default()
    };
    for cpu in cpus {
        for (at, class) in sum.classes.iter_mut().enumerate() {
            class.requests += cpu.requests[at];
            class.bytes += cpu.bytes[at];
            class.total_ns += cpu.total_ns[at];
        }
        sum.busy_ns += cpu.busy_ns;
        sum.partial += cpu.partial;
        sum.requeued += cpu.requeued;
    }
    sum
}

/// What the kernel counted between two looks.
pub(crate) fn add_whole(
    disks: &mut [DiskUse],
    before: &HashMap<u32, Stat>,
    after: &HashMap<u32, Stat>,
) {
    for disk in disks {
        disk.whole = whole(before.get(&disk.dev), after.get(&disk.dev));
    }
}

fn whole(before: Option<&Stat>, after: Option<&Stat>) -> Option<Whole> {
    let after = after?;
    let zero = Stat::default();
    // A disk that came during the interval began at 0.
    let before = before.unwrap_or(&zero);
    Some(Whole {
        busy_ns: after.busy_ms.saturating_sub(before.busy_ms) * 1_000_000,
        merged: after.merged.saturating_sub(before.merged),
        in_flight: after.in_flight,
    })
}
