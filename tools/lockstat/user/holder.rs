//! Who held a program's lock: the owner that the lock names, else whoever released it.

use std::cmp::Reverse;
use std::collections::HashMap;

use profile::rank::Rank;
use stacks::StackTable;

use crate::lockstat::futex::Class;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::row::{Holder, HolderKind, LockRow};

/// Drops owners that were read from memory which is no lock with an owner, and takes the releasers instead.
pub(super) fn settle(row: &mut LockRow, class: Class, stacks: &mut StackTable) {
    if !class.names_holder() {
        let mistaken = row
            .holders
            .iter()
            .any(|holder| holder.kind != HolderKind::Waker);
        if mistaken {
            let mut releasers = releasers(row, stacks);
            for releaser in &mut releasers {
                let is_same = |known: &&Holder| {
                    known.kind == HolderKind::Waker && known.task.tid == releaser.task.tid
                };
                if let Some(known) = row.holders.iter().find(is_same) {
                    releaser.meanwhile = known.meanwhile;
                }
            }
            row.holders = releasers;
        }
    }
    unite(&mut row.holders);
    row.holders
        .rank_by_key(|holder| Reverse((holder.caused_ns, holder.task.tid)));
}

/// One entry per thread, whichever word of the lock it was seen at.
fn unite(holders: &mut Vec<Holder>) {
    let mut united: HashMap<(u32, u32, HolderKind), Holder> = HashMap::new();
    for holder in holders.drain(..) {
        let key = (holder.task.tgid, holder.task.tid, holder.kind);
        match united.get_mut(&key) {
            None => drop(united.insert(key, holder)),
            Some(sum) => sum.add(&holder),
        }
    }
    holders.extend(united.into_values());
}

/// Whoever ended the waits, by time.
fn releasers(row: &LockRow, stacks: &mut StackTable) -> Vec<Holder> {
    let mut by_tid: HashMap<u32, Holder> = HashMap::new();
    for waiter in &row.waiters {
        let waker = stacks.waker(waiter.waker);
        let Some(task) = waker.and_then(|waker| waker.task.clone()) else {
            continue;
        };
        let holder = by_tid.entry(task.tid).or_insert(Holder {
            task,
            kind: HolderKind::Waker,
            waits: 0,
            caused_ns: 0,
            on_cpu: 0,
            runnable: 0,
            blocked: 0,
            meanwhile: Meanwhile::default(),
            stack: 0,
        });
        holder.waits += waiter.count;
        holder.caused_ns += waiter.total_ns;
    }
    by_tid.into_values().collect()
}
