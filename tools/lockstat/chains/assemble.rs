//! From rows that refer to each other to chains.

use std::cmp::Reverse;
use std::collections::HashMap;

use profile::rank::Rank;

use super::rows::Row;
use super::{Chain, Label, Link};
use crate::lockstat::row::{HolderKind, Identity};

/// Chains of two links or more, longest first wait first.
pub(super) fn assemble<'a>(
    rows: &HashMap<u64, Row>,
    label: impl Fn(&Identity) -> Option<&'a Label>,
) -> Vec<Chain> {
    let mut chains: Vec<Chain> = rows
        .values()
        .filter(|row| row.waits > 0 && row.next != 0)
        .filter_map(|row| chain(row, rows, &label))
        .collect();
    chains.rank_by_key(|chain| {
        let first = &chain.links[0];
        (Reverse(first.ns), first.waiter.tid, chain.links.len())
    });
    chains
}

fn chain<'a>(
    first: &Row,
    rows: &HashMap<u64, Row>,
    label: &impl Fn(&Identity) -> Option<&'a Label>,
) -> Option<Chain> {
    let mut links = vec![link(first, first.total_ns, label)];
    let mut row = first;
    // A row refers to older ones only; should a clock have given two the same id, this ends, too.
    while let Some(next) = rows.get(&row.next).filter(|_| links.len() <= rows.len()) {
        // The memory behind a futex was taken for a lock with an owner.
        if links.last().is_some_and(|link| link.holder.is_none()) {
            break;
        }
        links.push(link(next, row.next_ns, label));
        row = next;
    }
    (links.len() > 1).then_some(Chain {
        waits: first.waits,
        links,
    })
}

fn link<'a>(row: &Row, ns: u64, label: &impl Fn(&Identity) -> Option<&'a Label>) -> Link {
    let lock = label(&row.lock).cloned().unwrap_or_else(|| Label {
        name: format!("{:#x}", row.lock.address),
        class: "lock",
        names_holder: true,
    });
    let is_sound = lock.names_holder || row.kind == HolderKind::Waker;
    Link {
        waiter: row.waiter.clone(),
        holder: row.holder.clone().filter(|_| is_sound),
        lock,
        ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::Side;
    use profile::model::Task;

    fn task(tid: u32) -> Task {
        Task {
            comm: "app".into(),
            tgid: 1,
            tid,
        }
    }

    fn lock(address: u64) -> Identity {
        Identity {
            side: Side::User,
            address,
            object: 0,
            device: None,
            tgid: 1,
            class: 0,
        }
    }

    fn row(waiter: u32, address: u64, holder: u32, next: u64, ns: [u64; 2]) -> Row {
        Row {
            lock: lock(address),
            waiter: task(waiter),
            holder: (holder != 0).then(|| task(holder)),
            kind: HolderKind::Owner,
            next,
            waits: u64::from(ns[0] > 0),
            total_ns: ns[0],
            next_ns: ns[1],
        }
    }

    fn label(name: &str, names_holder: bool) -> Label {
        Label {
            name: name.into(),
            class: "mutex",
            names_holder,
        }
    }

    #[test]
    fn a_chain_of_three_has_its_tail_for_another_chain() {
        // 2 waits for C, which nobody waited behind: it is in the table for the others.
        let rows = HashMap::from([
            (1, row(12, 0xc, 13, 0, [0, 0])),
            (2, row(11, 0xb, 12, 1, [70, 60])),
            (3, row(10, 0xa, 11, 2, [90, 65])),
        ]);
        let (a, b, c) = (label("a", true), label("b", true), label("c", true));
        let chains = assemble(&rows, |lock| match lock.address {
            0xa => Some(&a),
            0xb => Some(&b),
            _ => Some(&c),
        });
        let found: Vec<Vec<(u32, &str, u64)>> = chains
            .iter()
            .map(|chain| {
                let links = chain.links.iter();
                links.map(|l| (l.waiter.tid, &*l.lock.name, l.ns)).collect()
            })
            .collect();
        assert_eq!(
            found,
            [
                vec![(10, "a", 90), (11, "b", 65), (12, "c", 60)],
                vec![(11, "b", 70), (12, "c", 60)],
            ]
        );
        assert_eq!(chains[0].links[2].holder, Some(task(13)));
    }

    #[test]
    fn an_owner_read_from_what_is_no_such_lock_begins_no_chain() {
        let rows = HashMap::from([
            (1, row(12, 0xc, 13, 0, [0, 0])),
            (2, row(11, 0xb, 12, 1, [70, 60])),
        ]);
        let other = label("b", false);
        assert_eq!(assemble(&rows, |_| Some(&other)), []);
    }
}
