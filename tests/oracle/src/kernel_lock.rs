//! Waits for the kernel's locks, as lockstat counts them: from `contention_begin` to `contention_end`.
//!
//! Whoever waits for a mutex begins to once more when it goes from spinning to sleep, or back. Of any other lock a second
//! beginning means that the first one's end was not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Logs;
use crate::bracket::{Interval, Pair};
use crate::event::{Event, Kind};
use crate::matched::matched;

/// Of one thread, by lock.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Those that both logs have.
    pub by_lock: BTreeMap<u64, Vec<Pair>>,
    /// Locks of which one log has more than the other. There are none but for what the logs have missed.
    pub unsure: BTreeSet<u64>,
}

/// Waits of a thread that waits for no lock at the logs' edges.
pub fn waits(logs: &Logs, tid: u32) -> Waits {
    let both = [&logs.before, &logs.after];
    let locks = both.into_iter().flat_map(|events| replay(events, tid));
    let locks: BTreeSet<u64> = locks.map(|(_, lock)| lock).collect();
    let mut waits = Waits::default();
    for lock in locks {
        // An interrupt comes upon one log, and upon the other: their waits for different locks may change places.
        let replay = |events: &[Event]| {
            let waits = replay(events, tid).into_iter();
            waits.filter(|wait| wait.1 == lock).collect()
        };
        match matched(logs, replay, |wait| wait.1) {
            Ok(both) => {
                let pairs = both.into_iter();
                let pairs = pairs.map(|((early, _), (late, _))| Pair::of(early, late));
                waits.by_lock.insert(lock, pairs.collect());
            }
            Err(_) => _ = waits.unsure.insert(lock),
        }
    }
    waits
}

fn replay(events: &[Event], tid: u32) -> Vec<(Interval, u64)> {
    let mut waits = Vec::new();
    let mut begun: HashMap<u64, u64> = HashMap::new();
    for event in events {
        match event.kind {
            Kind::Contention {
                tid: waiter,
                lock,
                is_mutex,
            } if waiter == tid && !(is_mutex && begun.contains_key(&lock)) => {
                begun.insert(lock, event.ns);
            }
            Kind::Contended { tid: waiter, lock } if waiter == tid => {
                let wait = begun.remove(&lock);
                waits.extend(wait.map(|begin_ns| (Interval::seen(begin_ns, event.ns), lock)));
            }
            _ => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(ns: u64, lock: u64, is_mutex: bool) -> Event {
        let kind = Kind::Contention {
            tid: 7,
            lock,
            is_mutex,
        };
        Event { ns, cpu: 0, kind }
    }

    fn ends(ns: u64, lock: u64) -> Event {
        let kind = Kind::Contended { tid: 7, lock };
        Event { ns, cpu: 0, kind }
    }

    #[test]
    fn waits_nest_and_a_mutex_begins_several_times() {
        let events = [
            begins(10, 0xa, true),
            begins(12, 0xb, false),
            ends(13, 0xb),
            begins(15, 0xa, true),
            ends(20, 0xa),
            // Its end was not seen.
            begins(30, 0xb, false),
            begins(40, 0xb, false),
            ends(41, 0xb),
            // Its beginning was not seen.
            ends(45, 0xb),
        ];
        let expected = [
            (Interval::seen(12, 13), 0xb),
            (Interval::seen(10, 20), 0xa),
            (Interval::seen(40, 41), 0xb),
        ];
        assert_eq!(replay(&events, 7), expected);
    }
}
