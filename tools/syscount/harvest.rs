//! One interval out of the BPF side's maps.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use bpf::syscount::SyscountSkel;
use bpf::syscount::types::{group_id, group_key, sum_kind, syscount_totals};
use budget::Bounded;
use hist::Histogram;
use hist::harvest::{take_groups, take_half};
use host::task::comm_text;
use loader::counters::Words;
use loader::maps;

use crate::syscount::names;

/// Calls of one kind by one process, thread or name.
#[derive(Clone, Default)]
pub(crate) struct Row {
    /// Process or thread; 0: of all with the name.
    pub(crate) id: u32,
    /// Empty: of all.
    pub(crate) comm: Arc<str>,
    /// The BPF side's number, see [`names`].
    pub(crate) call: u32,
    /// Whole latencies of those that returned.
    pub(crate) returned: Histogram,
    /// Time that passed in them in the interval, those that are open at its end included.
    pub(crate) time_ns: u64,
    /// They have not returned when it ends.
    pub(crate) open: u64,
    /// Calls that failed, by the error's number.
    pub(crate) errors: BTreeMap<u32, u64>,
    /// Calls that a signal took a thread out of.
    pub(crate) interrupted: u64,
    /// Processes that have ended and are one row; 0: the row is none of those.
    pub(crate) ended: u64,
}

impl Row {
    /// Calls that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Takes in another row of the same call, by another process of the name.
    fn merge(&mut self, other: &Self) {
        self.returned.merge(&other.returned);
        self.time_ns += other.time_ns;
        self.open += other.open;
        self.interrupted += other.interrupted;
        self.ended += other.ended;
        for (error, count) in &other.errors {
            *self.errors.entry(*error).or_default() += count;
        }
    }

    /// Takes in one of the BPF side's sums, of this kind.
    fn add(&mut self, kind: u32, value: u64) {
        match sum_kind(kind) {
            sum_kind::SUM_OPEN => self.open += value,
            sum_kind::SUM_OPEN_NS => self.time_ns += value,
            sum_kind::SUM_EARLIER_NS => self.time_ns = self.time_ns.saturating_sub(value),
            _ if names::is_interruption(kind) => self.interrupted += value,
            _ if names::is_sigreturn(&names::call(self.call)) => {}
            _ => *self.errors.entry(kind).or_default() += value,
        }
    }
}

/// Makes one row of those of processes of one name that have ended: a build's hundred compilers would hide what they do together.
pub(crate) fn merge_ended(rows: Vec<Row>, is_there: fn(u32) -> bool) -> Vec<Row> {
    let mut known: HashMap<u32, bool> = HashMap::new();
    let (mut merged, ended): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .partition(|row| *known.entry(row.id).or_insert_with(|| is_there(row.id)));
    let mut by_name: BTreeMap<(Arc<str>, u32), Row> = BTreeMap::new();
    for row in ended {
        let row = Row { ended: 1, ..row };
        match by_name.entry((Arc::clone(&row.comm), row.call)) {
            Entry::Vacant(vacant) => {
                vacant.insert(row);
            }
            Entry::Occupied(occupied) => occupied.into_mut().merge(&row),
        }
    }
    merged.extend(by_name.into_values().map(|row| match row.ended {
        1 => Row { ended: 0, ..row },
        _ => Row { id: 0, ..row },
    }));
    merged
}

/// Identity of a row: process or thread, call, name.
type Key = (u32, u32, [u8; 16]);

/// Most rows of an interval; each takes some KiB.
const MOST_ROWS: usize = 1 << 15;

/// The rows of an interval so far.
pub(crate) struct Rows(Bounded<Key, Row>);

impl Default for Rows {
    fn default() -> Self {
        Self(Bounded::new(MOST_ROWS))
    }
}

impl Rows {
    /// Takes in half `epoch` of the BPF side's maps, which nobody writes any more. Returns how many calls found no room.
    pub(crate) fn gather(&mut self, skel: &SyscountSkel<'_>, epoch: u32) -> Result<u64> {
        let mut homeless = 0;
        for group in take_groups::<group_id>(&skel.maps.groups, &skel.maps.buckets, epoch)? {
            match self.row(&group.id) {
                Some(row) => {
                    row.time_ns += group.histogram.sum();
                    row.returned.merge(&group.histogram);
                }
                None => homeless += group.histogram.count(),
            }
        }
        let is_ours = |key: &group_key| key.epoch == epoch;
        for (key, value) in take_half(&skel.maps.sums, "clear map", is_ours)? {
            match self.row(&key.id) {
                Some(row) => row.add(key.bucket, value),
                // Those that returned are told by their latencies.
                None if sum_kind(key.bucket) == sum_kind::SUM_OPEN => homeless += value,
                None => {}
            }
        }
        Ok(homeless)
    }

    fn row(&mut self, id: &group_id) -> Option<&mut Row> {
        self.0.entry((id.id, id.call, id.comm), || Row {
            id: id.id,
            comm: comm_text(&id.comm),
            call: id.call,
            ..Row::default()
        })
    }

    /// All of them, in no order; or those with failures: what a signal's handler gives back looks like one to the BPF side.
    pub(crate) fn take(&mut self, only_failures: bool) -> Vec<Row> {
        let rows = self.0.drain().map(|(_, row)| row);
        rows.filter(|row| !only_failures || row.failed() > 0)
            .collect()
    }
}

/// Calls since the start of the run.
pub(crate) fn totals(skel: &SyscountSkel<'_>) -> Result<syscount_totals> {
    let per_cpu: Vec<syscount_totals> = maps::per_cpu(&skel.maps.totals, 0)?;
    let sum = |of: fn(&syscount_totals) -> u64| per_cpu.iter().map(of).sum();
    Ok(syscount_totals {
        calls: sum(|cpu| cpu.calls),
        under_way_at_start: sum(|cpu| cpu.under_way_at_start),
        groups: sum(|cpu| cpu.groups),
    })
}

/// Counters of what was not counted.
pub(crate) const LOSSES: [Words; 4] = [
    ("groups_full", "calls: too many rows"),
    ("buckets_full", "latencies: table full"),
    ("losses.sums_full", "errors and open calls: table full"),
    ("losses.negative", "durations: clock went backwards"),
];
