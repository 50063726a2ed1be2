//! System calls, as syscount counts them: from entry to return.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::Logs;
use crate::bracket::{Bracket, Interval, Pair};
use crate::event::{Event, Kind};
use crate::matched::matched;

/// Calls of one number that a thread has made.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Their number and time.
    pub bracket: Bracket,
    /// Those that returned an error, by its number.
    pub errors: BTreeMap<u32, u64>,
}

/// A call in one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Single {
    number: u32,
    result: i64,
    whole: Interval,
}

/// Largest number of an error.
const MOST: i64 = 4095;

/// All native calls of a thread that begin and end in the logs, by number.
///
/// # Errors
///
/// The two logs disagree.
pub fn calls(logs: &Logs, tid: u32) -> Result<BTreeMap<u32, Calls>> {
    let key = |call: &Single| (call.number, call.result);
    let both = matched(logs, |events| replay(events, tid), key);
    let both = both.with_context(|| format!("system calls of thread {tid}"))?;
    let mut pairs: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
    let mut calls: BTreeMap<u32, Calls> = BTreeMap::new();
    for (early, late) in both {
        let pair = Pair::of(early.whole, late.whole);
        pairs.entry(early.number).or_default().push(pair);
        let calls = calls.entry(early.number).or_default();
        if (-MOST..0).contains(&early.result) {
            let error = u32::try_from(-early.result)?;
            *calls.errors.entry(error).or_default() += 1;
        }
    }
    for (number, pairs) in pairs {
        calls.entry(number).or_default().bracket = pairs.into_iter().collect();
    }
    Ok(calls)
}

fn replay(events: &[Event], tid: u32) -> Vec<Single> {
    let mut calls = Vec::new();
    let mut open = None;
    for event in events {
        match event.kind {
            Kind::Call { tid: caller, call } if caller == tid => {
                open = (!call.is_compat).then_some((call.number, event.ns));
            }
            Kind::Return {
                tid: caller,
                result,
            } if caller == tid => {
                calls.extend(open.take().map(|(number, begin_ns)| Single {
                    number,
                    result,
                    whole: Interval::seen(begin_ns, event.ns),
                }));
            }
            _ => {}
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Call;

    fn events(shift_ns: i64) -> Vec<Event> {
        let event = |ns: u64, kind| Event {
            ns: ns.checked_add_signed(shift_ns).unwrap(),
            cpu: 0,
            kind,
        };
        let call = |ns, tid, number| {
            let call = Call {
                number,
                is_compat: false,
                first: 0,
                second: 0,
                fifth: 0,
            };
            event(ns, Kind::Call { tid, call })
        };
        let returns = |ns, tid, result| event(ns, Kind::Return { tid, result });
        vec![
            // Its beginning is in no log.
            returns(10, 7, 0),
            call(20, 7, 1),
            call(22, 8, 1),
            returns(30, 7, -2),
            returns(35, 8, 0),
            call(40, 7, 1),
            returns(45, 7, 100),
            // Its end is not.
            call(50, 7, 0),
        ]
    }

    #[test]
    fn calls_go_from_entry_to_return_and_errors_are_counted() {
        let logs = Logs {
            before: events(0),
            after: events(1),
            missed: 0,
        };
        let calls = calls(&logs, 7).unwrap();
        assert_eq!(calls.len(), 1);
        let write = &calls[&1];
        assert_eq!(write.errors, BTreeMap::from([(2, 1)]));
        let bracket = write.bracket;
        let found = (bracket.count, bracket.least_ns, bracket.most_ns);
        assert_eq!(found, (2, 9 + 4, 11 + 6));
    }
}
