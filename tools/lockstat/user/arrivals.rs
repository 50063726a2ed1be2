//! Threads that came last to a barrier, and how often: they release those who wait there.

use std::cmp::Reverse;
use std::collections::HashMap;

use profile::model::Task;
use profile::rank::Rank;
use stacks::StackTable;

use super::caller;
use crate::lockstat::futex::{Class, Rules};
use crate::lockstat::row::{Arrival, LockRow};

/// The last ones of a row's rounds, most often first.
pub(super) fn last(row: &LockRow, rules: &Rules, stacks: &mut StackTable) -> Vec<Arrival> {
    let releases = row.waiters.iter().filter_map(|waiter| {
        let task = stacks.waker(waiter.waker)?.task.clone()?;
        Some(Release {
            waiter: (waiter.task.tgid, waiter.task.tid),
            by: task,
            waker: waiter.waker,
            // An earlier interval has counted a wait that was still open.
            waits: waiter.count.max(1),
            ns: waiter.total_ns,
        })
    });
    let mut last = count(releases.collect());
    for arrival in &mut last {
        let stack = stacks.waker_stack(arrival.waker);
        arrival.caller = caller(rules, stack, Class::Barrier, stacks);
    }
    last
}

type Thread = (u32, u32);

/// Waits of a thread that another one ended in one place.
struct Release {
    waiter: Thread,
    by: Task,
    waker: u64,
    waits: u64,
    ns: u64,
}

/// Each of those who wait is released once in a round. Not all need to sleep in it, so that the one who slept most often says how many
/// there were.
fn count(releases: Vec<Release>) -> Vec<Arrival> {
    let mut rounds: HashMap<(Thread, Thread), u64> = HashMap::new();
    let mut places: HashMap<Thread, HashMap<u64, u64>> = HashMap::new();
    let mut last: HashMap<Thread, Arrival> = HashMap::new();
    for release in releases {
        let by = (release.by.tgid, release.by.tid);
        let rounds = rounds.entry((by, release.waiter)).or_default();
        *rounds += release.waits;
        let of_it = places.entry(by).or_default();
        *of_it.entry(release.waker).or_default() += release.ns;
        let arrival = last.entry(by).or_insert(Arrival {
            task: release.by,
            times: 0,
            caused_ns: 0,
            caller: None,
            waker: release.waker,
        });
        arrival.times = arrival.times.max(*rounds);
        arrival.caused_ns += release.ns;
    }
    let mut last: Vec<Arrival> = last.into_values().collect();
    for arrival in &mut last {
        let of_it = places.get(&(arrival.task.tgid, arrival.task.tid));
        let of_it = of_it.into_iter().flatten();
        let most = of_it.max_by_key(|(waker, ns)| (**ns, **waker));
        arrival.waker = most.map_or(0, |(waker, _)| *waker);
    }
    last.rank_by_key(|last| Reverse((last.caused_ns, last.times, last.task.tid)));
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::task;

    fn release(waiter: u32, by: u32, waker: u64, waits: u64, ns: u64) -> Release {
        Release {
            waiter: (1, waiter),
            by: task("team", 1, by),
            waker,
            waits,
            ns,
        }
    }

    /// Thread 4 was last in 10 rounds, in one of which 2 did not sleep; thread 3 in two.
    #[test]
    fn rounds_are_those_of_who_slept_most_often() {
        let last = count(vec![
            release(2, 4, 70, 9, 900),
            release(3, 4, 70, 4, 400),
            release(3, 4, 71, 6, 700),
            release(2, 3, 72, 2, 20),
        ]);
        let said: Vec<_> = last
            .iter()
            .map(|one| (one.task.tid, one.times, one.caused_ns, one.waker))
            .collect();
        assert_eq!(said, [(4, 10, 2_000, 70), (3, 2, 20, 72)]);
    }
}
