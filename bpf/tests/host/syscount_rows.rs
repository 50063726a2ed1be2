//! Tables of syscount, as the programs fill them and as they should be.

use std::collections::BTreeMap;

use bpf::syscount::types::{group_key, sum};

use crate::host::{CPUS, Host};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) call: u32,
    pub(crate) comm: [u8; 16],
}

impl From<group_key> for Group {
    fn from(key: group_key) -> Self {
        Self {
            id: key.id.id,
            call: key.id.call,
            comm: key.id.comm,
        }
    }
}

/// `enum sum_kind`, behind the numbers of errors.
pub(crate) const OPEN: u32 = 4_096;
pub(crate) const OPEN_NS: u32 = 4_097;
pub(crate) const EARLIER_NS: u32 = 4_098;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// Calls, their time, the longest.
    pub(crate) groups: BTreeMap<Group, [u64; 3]>,
    pub(crate) buckets: BTreeMap<(Group, u32), u64>,
    pub(crate) sums: BTreeMap<(Group, u32), u64>,
}

impl Tables {
    /// Takes them from the programs.
    pub(crate) fn told(host: &Host, half: u32) -> Self {
        let is_taken = |key: &group_key| key.epoch == half;
        let groups = host.take::<_, [sum; CPUS]>("groups", is_taken).into_iter();
        let counts = |map| {
            let counts = host.take::<_, u64>(map, is_taken).into_iter();
            counts.map(|(key, count)| ((key.into(), key.bucket), count))
        };
        Self {
            groups: groups
                .map(|(key, sums)| (key.into(), whole(&sums)))
                .collect(),
            buckets: counts("buckets").collect(),
            sums: counts("sums").collect(),
        }
    }

    /// Time that passed in calls in the interval.
    pub(crate) fn time_ns(&self) -> u64 {
        let returned: u64 = self.groups.values().map(|values| values[1]).sum();
        let of = |wanted| {
            let sums = self
                .sums
                .iter()
                .filter(move |((_, kind), _)| *kind == wanted);
            sums.map(|(_, sum)| sum).sum::<u64>()
        };
        (returned + of(OPEN_NS)).wrapping_sub(of(EARLIER_NS))
    }
}

/// Calls, their time and the longest, on all CPUs.
fn whole(sums: &[sum]) -> [u64; 3] {
    sums.iter().fold([0; 3], |[calls, ns, max_ns], sum| {
        [calls + sum.count, ns + sum.total_ns, max_ns.max(sum.max_ns)]
    })
}

/// Adds to a sum, unless it is a new one and no table has room.
pub(crate) fn add<K: Ord>(table: &mut BTreeMap<K, u64>, key: K, value: u64, is_full: bool) -> bool {
    if is_full && !table.contains_key(&key) {
        return false;
    }
    *table.entry(key).or_default() += value;
    true
}
