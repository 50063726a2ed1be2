//! One interval out of the BPF side's tables, as plain rows.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{
    holder_key, holder_value, lock_key, lock_sum, waiter_key, waiter_value,
};
use hist::Histogram;
use hist::harvest::take_half;
use host::task::comm_text;
use profile::model::Task;
use profile::rank::Rank;
use stacks::StackTable;

use crate::lockstat::kernel;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::merge;
use crate::lockstat::names::Names;
use crate::lockstat::postgres;
use crate::lockstat::row::LeftOut;
use crate::lockstat::row::{For, Holder, HolderKind, Identity, LockName, LockRow, Waiter};
use crate::lockstat::user;

/// An interval that is over.
pub(crate) struct Ended {
    /// Half of the tables that holds it.
    pub(crate) half: u32,
    /// Programs' threads that still wait: `struct open_futex`.
    pub(crate) open: Vec<u8>,
    /// On the clock of the BPF side, ns.
    pub(crate) window_ns: Range<u64>,
}

/// Everything that an interval found.
pub(crate) struct Harvest {
    /// Longest total wait first.
    pub(crate) rows: Vec<LockRow>,
    /// Of the interval, on the clock of the BPF side, ns.
    pub(crate) window_ns: Range<u64>,
    /// Programs' waits for work of classes that were not asked for.
    pub(crate) left_out: Vec<LeftOut>,
    /// Those of them that are known to be for work, and not by their shape.
    pub(crate) work: Vec<LockRow>,
}

impl Harvest {
    /// Its length.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_nanos(self.window_ns.end.saturating_sub(self.window_ns.start))
    }

    /// Reads and clears the interval's half of the tables.
    pub(crate) fn take(
        skel: &LockstatSkel<'_>,
        stacks: &mut StackTable,
        names: &mut Names,
        ended: Ended,
    ) -> Result<Self> {
        let mut rows = raw_rows(skel, ended.half)?;
        user::add_open_stacks(&mut rows, &ended.open, stacks, ended.window_ns.end)?;
        let window_ns = ended.window_ns.end.saturating_sub(ended.window_ns.start);
        kernel::name(&mut rows, skel, stacks, &mut names.symbols)?;
        let of_servers = postgres::take(&mut rows);
        let idle_users = user::name(&mut rows, skel, stacks, names, window_ns)?;
        let asked = &names.server_classes;
        let (of_servers, idle) = postgres::name(of_servers, &names.servers, asked, stacks);
        rows.extend(of_servers);
        let mut left_out = idle_users.left_out;
        left_out.extend(idle);
        left_out.rank_by_key(|sum| Reverse((sum.total_ns, sum.class)));
        rows.rank_by_key(|row| Reverse((row.total_ns, row.identity)));
        Ok(Self {
            rows,
            window_ns: ended.window_ns,
            left_out,
            work: idle_users.known,
        })
    }
}

/// Words for an error.
const CLEAR: &str = "clear table of locks";

/// Locks as the BPF side tells them apart, each with its waiters and holders, heaviest first.
fn raw_rows(skel: &LockstatSkel<'_>, half: u32) -> Result<Vec<LockRow>> {
    let maps = &skel.maps;
    let sums = take_half::<lock_key, lock_sum>(&maps.locks, CLEAR, |key| key.epoch == half)?;
    let mut rows = by_identity(&sums);
    let counts = take_half::<lock_key, u64>(&maps.lock_buckets, CLEAR, |key| key.epoch == half)?;
    for (key, count) in counts {
        if let Some(row) = rows.get_mut(&Identity::from(&key.lock)) {
            row.waits.add(key.bucket as usize, count);
        }
    }
    for (key, value) in
        take_half::<waiter_key, waiter_value>(&maps.waiters, CLEAR, |key| key.epoch == half)?
    {
        if let Some(row) = rows.get_mut(&Identity::from(&key.lock)) {
            row.waiters.push(waiter(&key, &value));
        }
    }
    for (key, value) in
        take_half::<holder_key, holder_value>(&maps.holders, CLEAR, |key| key.epoch == half)?
    {
        if let Some(row) = rows.get_mut(&Identity::from(&key.lock)) {
            row.holders.push(holder(&key, &value));
        }
    }
    let mut rows: Vec<LockRow> = rows.into_values().collect();
    for row in &mut rows {
        row.sort();
    }
    Ok(rows)
}

/// The BPF side also tells calls with different flags apart.
fn by_identity(sums: &[(lock_key, lock_sum)]) -> HashMap<Identity, LockRow> {
    let mut rows: HashMap<Identity, LockRow> = HashMap::new();
    for (key, sum) in sums {
        let identity = Identity::from(&key.lock);
        let new = row(identity, key.lock.confidence, sum);
        match rows.get_mut(&identity) {
            None => drop(rows.insert(identity, new)),
            Some(known) => {
                let flags = known.confidence | new.confidence;
                merge::add(known, &new);
                known.locks = 1;
                known.confidence = flags;
            }
        }
    }
    rows
}

fn row(identity: Identity, confidence: u8, sum: &lock_sum) -> LockRow {
    let mut waits = Histogram::default();
    // An earlier interval has counted the others, and their lengths.
    let counted_ns = sum.total_ns.saturating_sub(sum.carried_ns);
    waits.add_exact(sum.contentions, counted_ns, sum.max_ns);
    LockRow {
        identity,
        name: LockName::default(),
        class: "",
        what: For::Others,
        in_turns: false,
        confidence,
        locks: 1,
        contentions: sum.contentions,
        waits,
        total_ns: sum.total_ns,
        max_ns: sum.max_ns,
        spin_ns: sum.spin_ns,
        block_ns: sum.block_ns,
        run_queue_ns: sum.run_queue_ns,
        raced: sum.raced,
        timed_out: sum.given_up,
        open: sum.open,
        first_caller: None,
        waiters: Vec::new(),
        holders: Vec::new(),
        last: Vec::new(),
    }
}

fn waiter(key: &waiter_key, value: &waiter_value) -> Waiter {
    Waiter {
        task: Task::new(comm_text(&key.comm), key.tgid, key.tid),
        caller: None,
        in_interrupt: false,
        is_shared: key.mode != 0,
        kernel: key.kernel_stack,
        user: key.user_stack,
        waker: key.waker,
        count: value.count,
        total_ns: value.total_ns,
        run_queue_ns: value.run_queue_ns,
        max_ns: value.max_ns,
        inside: value.inside,
    }
}

fn holder(key: &holder_key, value: &holder_value) -> Holder {
    let kind = HolderKind::of(key.kind.into());
    // Whoever releases a lock is on a CPU; what that thread was doing with it before is not known.
    let [on_cpu, runnable, blocked] = match kind {
        HolderKind::Waker => [0; 3],
        HolderKind::Owner | HolderKind::Reader => value.states,
    };
    Holder {
        task: Task::new(comm_text(&value.comm), key.tgid, key.tid),
        kind,
        waits: value.waits,
        caused_ns: value.caused_ns,
        on_cpu,
        runnable,
        blocked,
        meanwhile: Meanwhile(value.meanwhile),
        stack: key.stack,
    }
}

#[cfg(test)]
mod tests {
    use bpf::lockstat::types::lock_id;

    use super::*;

    #[test]
    fn the_mean_is_of_waits_that_this_interval_counts() {
        let sum = lock_sum {
            contentions: 1,
            total_ns: 10_001,
            carried_ns: 10_000,
            max_ns: 5_000,
            ..lock_sum::default()
        };
        let identity = Identity::from(&lock_id::default());
        let row = row(identity, 0, &sum);
        assert_eq!((row.waits.mean(), row.total_ns), (1, 10_001));
    }

    #[test]
    fn calls_that_differ_in_flags_only_wait_for_one_lock() {
        let wait = |flags: u8, total_ns: u64| {
            let mut key = lock_key::default();
            (key.lock.address, key.lock.side) = (0x1000, 1);
            key.lock.confidence = flags;
            let sum = lock_sum {
                contentions: 1,
                total_ns,
                max_ns: total_ns,
                ..lock_sum::default()
            };
            (key, sum)
        };
        let rows = by_identity(&[wait(0, 10), wait(2, 30), wait(1, 5)]);
        let row = rows.values().next().expect("a lock");
        assert_eq!((rows.len(), row.locks), (1, 1));
        assert_eq!((row.contentions, row.total_ns, row.max_ns), (3, 45, 30));
        assert_eq!((row.waits.count(), row.confidence), (3, 3));
    }
}
