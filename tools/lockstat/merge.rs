//! Many locks of a kind as one line of the table.

use std::cmp::Reverse;
use std::collections::HashMap;

use profile::rank::Rank;

use crate::lockstat::row::{Arrival, For, LockRow, Side};

/// A lock with less of its kind's waiting than this is not shown by itself, where there are more than [`FEW`].
const OWN_LINE: f64 = 0.1;
/// Locks of a kind that are not too many to be shown one by one.
const FEW: usize = 3;

/// Puts together what is small and alike; longest total wait first.
pub(crate) fn merge(rows: &[LockRow]) -> Vec<LockRow> {
    let mut kinds: HashMap<(Side, &str, For, &str), Vec<&LockRow>> = HashMap::new();
    let mut merged: Vec<LockRow> = Vec::new();
    for row in rows {
        if row.name.kind.is_empty() {
            merged.push(row.clone());
        } else {
            let kind = (row.identity.side, row.class, row.what, &*row.name.kind);
            kinds.entry(kind).or_default().push(row);
        }
    }
    for ((_, _, _, kind), locks) in kinds {
        let total_ns: u64 = locks.iter().map(|row| row.total_ns).sum();
        // Without names of their own nobody could tell them apart.
        let (by_themselves, together): (Vec<&LockRow>, Vec<&LockRow>) =
            locks.iter().partition(|row| {
                row.name.own != kind
                    && (locks.len() <= FEW || row.total_ns as f64 >= OWN_LINE * total_ns as f64)
            });
        merged.extend(by_themselves.into_iter().cloned());
        merged.extend(sum(kind, &together));
    }
    merged.rank_by_key(|row| Reverse((row.total_ns, row.identity)));
    merged
}

/// The same of the futexes of each process, as those that each of Java's threads waits at: the process stays known.
pub(crate) fn merge_in_processes(rows: impl Iterator<Item = LockRow>) -> Vec<LockRow> {
    let mut processes: HashMap<u32, Vec<LockRow>> = HashMap::new();
    let mut merged = Vec::new();
    for row in rows {
        match row.identity.is_futex() {
            true => processes.entry(row.identity.tgid).or_default().push(row),
            false => merged.push(row),
        }
    }
    merged.extend(processes.values().flat_map(|rows| merge(rows)));
    merged.rank_by_key(|row| Reverse((row.total_ns, row.identity)));
    merged
}

fn sum(kind: &str, rows: &[&LockRow]) -> Option<LockRow> {
    let (first, others) = rows.split_first()?;
    let mut sum = (*first).clone();
    if others.is_empty() {
        return Some(sum);
    }
    sum.name.own = kind.into();
    for row in others {
        add(&mut sum, row);
    }
    sum.sort();
    Some(sum)
}

/// Adds the waits for one lock to those for another.
pub(crate) fn add(sum: &mut LockRow, row: &LockRow) {
    sum.locks += row.locks;
    sum.contentions += row.contentions;
    sum.waits.merge(&row.waits);
    sum.total_ns += row.total_ns;
    sum.max_ns = sum.max_ns.max(row.max_ns);
    sum.spin_ns += row.spin_ns;
    sum.block_ns += row.block_ns;
    sum.run_queue_ns += row.run_queue_ns;
    sum.raced += row.raced;
    sum.timed_out += row.timed_out;
    sum.open += row.open;
    sum.confidence = sum.confidence.min(row.confidence);
    sum.in_turns &= row.in_turns;
    sum.waiters.extend_from_slice(&row.waiters);
    sum.holders.extend_from_slice(&row.holders);
    add_arrivals(&mut sum.last, &row.last);
}

/// A thread may come last to several barriers: the one that it made others wait for longest says where from.
fn add_arrivals(sum: &mut Vec<Arrival>, more: &[Arrival]) {
    for one in more {
        let thread = |of: &Arrival| (of.task.tgid, of.task.tid);
        let Some(same) = sum.iter_mut().find(|same| thread(same) == thread(one)) else {
            sum.push(one.clone());
            continue;
        };
        if one.caused_ns > same.caused_ns {
            (same.caller, same.waker) = (one.caller.clone(), one.waker);
        }
        same.times += one.times;
        same.caused_ns += one.caused_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::LockName;
    use crate::lockstat::row::tests::row;

    fn named(own: &str, kind: &str, total_ns: u64) -> LockRow {
        let mut row = row(total_ns);
        row.name = LockName::new(own, kind);
        row.identity.address = total_ns;
        row
    }

    #[test]
    fn the_large_stay_by_themselves_and_the_small_become_one() {
        let mut rows = vec![named("i_rwsem of dir spool", "i_rwsem", 1_000)];
        rows.extend((1..=50).map(|n| named(&format!("i_rwsem of dir {n}"), "i_rwsem", n)));
        let merged = merge(&rows);
        let lines: Vec<_> = merged
            .iter()
            .map(|row| (&*row.name.own, row.locks, row.total_ns))
            .collect();
        assert_eq!(
            lines,
            [("i_rwsem", 50, 1_275), ("i_rwsem of dir spool", 1, 1_000)]
        );
        assert_eq!(merged[0].contentions, 50);
        assert_eq!(merged[0].waits.count(), 50);
    }

    #[test]
    fn futexes_of_a_kind_are_one_in_each_process() {
        let of = |tgid, at: u64| {
            let mut row = named(&format!("[anon] {at}"), "[anon] in enter", at);
            (row.identity.side, row.identity.class) = (Side::User, 0);
            row.identity.tgid = tgid;
            row
        };
        let kernel = named("i_rwsem of dir spool", "i_rwsem", 5);
        let rows = (1..=20).map(|at| of(7, at)).chain([of(8, 15), kernel]);
        let merged = merge_in_processes(rows);
        let found = merged.iter();
        let found: Vec<_> = found
            .map(|row| (row.identity.tgid, row.locks, row.total_ns))
            .collect();
        assert_eq!(found, [(7, 20, 210), (8, 1, 15), (0, 1, 5)]);
    }

    #[test]
    fn few_stay_apart_unless_they_have_no_names_of_their_own() {
        let rows = [
            named("pipe:[1]", "pipe", 10),
            named("pipe:[2]", "pipe", 1_000),
            named("siglock", "siglock", 7),
            named("siglock", "siglock", 8),
            named("tasklist_lock", "", 5),
        ];
        let merged = merge(&rows);
        let names: Vec<_> = merged
            .iter()
            .map(|row| (&*row.name.own, row.locks))
            .collect();
        assert_eq!(
            names,
            [
                ("pipe:[2]", 1),
                ("siglock", 2),
                ("pipe:[1]", 1),
                ("tasklist_lock", 1)
            ]
        );
    }
}
