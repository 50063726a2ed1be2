//! Tables of biolatency, as the programs fill them and as they should be.

use std::collections::BTreeMap;

use bpf::biolatency::types::error_key;

use crate::host::{CPUS, Host};

/// `struct group_key` of biolatency.bpf.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Group {
    pub(crate) disk: u64,
    pub(crate) cgroup: u64,
    pub(crate) dev: u32,
    pub(crate) opf: u32,
    pub(crate) tgid: u32,
    pub(crate) phase: u32,
    pub(crate) half: u32,
    pub(crate) bucket: u32,
}

/// `struct sum` of groups.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) comm: [u8; 16],
}

impl Sum {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// That of all CPUs; only the one that made the group has its name.
    fn whole(sums: &[Self]) -> Self {
        sums.iter().fold(Self::default(), |all, sum| Self {
            count: all.count + sum.count,
            total_ns: all.total_ns + sum.total_ns,
            max_ns: all.max_ns.max(sum.max_ns),
            comm: if sum.comm[0] > 0 { sum.comm } else { all.comm },
        })
    }
}

/// `struct slow_io` of endings.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Slow {
    pub(crate) time_ns: u64,
    pub(crate) disk: u64,
    pub(crate) before_ns: u64,
    pub(crate) queued_ns: u64,
    pub(crate) device_ns: u64,
    pub(crate) total_ns: u64,
    pub(crate) sector: u64,
    pub(crate) dev: u32,
    pub(crate) bytes: u32,
    pub(crate) opf: u32,
    pub(crate) status: i32,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
}

pub(crate) const CLASSES: usize = 5;
/// Requests, bytes and ns by class; then ns busy, partial completions, requeues.
pub(crate) type DiskSum = [u64; 3 * CLASSES + 3];
pub(crate) const BYTES: usize = CLASSES;
pub(crate) const TOTAL_NS: usize = 2 * CLASSES;
pub(crate) const BUSY_NS: usize = 3 * CLASSES;
pub(crate) const PARTIAL: usize = BUSY_NS + 1;
pub(crate) const REQUEUED: usize = BUSY_NS + 2;

/// Places in `lost`.
pub(crate) const RING_FULL: usize = 0;
pub(crate) const NEGATIVE: usize = 1;
pub(crate) const UNSTAMPED: usize = 2;
pub(crate) const UNATTRIBUTED: usize = 3;
pub(crate) const BEGUN_BEFORE: usize = 4;
pub(crate) const NEVER_COMPLETED: usize = 5;
pub(crate) const STARTED_FULL: usize = 6;
pub(crate) const DISKS_FULL: usize = 7;
pub(crate) const GROUPS_FULL: usize = 8;
pub(crate) const BUCKETS_FULL: usize = 9;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) groups: BTreeMap<Group, Sum>,
    pub(crate) buckets: BTreeMap<Group, u64>,
    /// An error's number and class stand where a group has its process and phase.
    pub(crate) errors: BTreeMap<Group, u64>,
}

impl Tables {
    pub(crate) fn told(host: &Host) -> Self {
        let groups = host.all::<_, [Sum; CPUS]>("groups").into_iter();
        let errors = host.all::<error_key, _>("errors").into_iter();
        Self {
            groups: groups.map(|(key, sums)| (key, Sum::whole(&sums))).collect(),
            buckets: host.all("buckets").into_iter().collect(),
            errors: errors.map(|(key, count)| (of_error(&key), count)).collect(),
        }
    }
}

fn of_error(key: &error_key) -> Group {
    Group {
        disk: key.disk,
        dev: key.dev,
        tgid: key.status.cast_unsigned(),
        phase: key.class,
        half: key.epoch,
        ..Group::default()
    }
}
