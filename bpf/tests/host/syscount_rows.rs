//! Tables of syscount, as the programs fill them and as they should be.

use std::collections::BTreeMap;
use std::ffi::c_void;

use crate::host::Host;

/// `struct group_id` of syscount.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) call: u32,
    pub(crate) comm: [u8; 16],
}

/// `enum sum_kind`, behind the numbers of errors.
pub(crate) const OPEN: u32 = 4_096;
pub(crate) const OPEN_NS: u32 = 4_097;
pub(crate) const EARLIER_NS: u32 = 4_098;

/// `struct host_row` of host/syscount.c.
#[repr(C)]
struct Row {
    table: u32,
    group: Group,
    bucket: u32,
    values: [u64; 3],
}

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
        type Take = extern "C" fn(*mut c_void, *const Row);
        extern "C" fn row(to: *mut c_void, row: *const Row) {
            // SAFETY: the host hands over what it was given, and a row.
            let (tables, row) = unsafe { (&mut *to.cast::<Tables>(), &*row) };
            match row.table {
                0 => drop(tables.groups.insert(row.group, row.values)),
                1 => drop(
                    tables
                        .buckets
                        .insert((row.group, row.bucket), row.values[0]),
                ),
                _ => drop(tables.sums.insert((row.group, row.bucket), row.values[0])),
            }
        }
        let mut tables = Self::default();
        let to = (&raw mut tables).cast::<c_void>();
        host.tell("host_take", (half, row as Take, to));
        tables
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

/// Adds to a sum, unless it is a new one and no table has room.
pub(crate) fn add<K: Ord>(table: &mut BTreeMap<K, u64>, key: K, value: u64, is_full: bool) -> bool {
    if is_full && !table.contains_key(&key) {
        return false;
    }
    *table.entry(key).or_default() += value;
    true
}
