//! Block requests of one disk, as biolatency counts them: from the kernel's stamp of their start to its account of their end.
//!
//! The parts of a flush sequence are no requests of their own, but for the flushes, which nobody accounts for: they end with their
//! completion.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};

use crate::Logs;
use crate::bracket::{Bracket, Interval, Pair};
use crate::event::{Event, Kind, Request, Step};
use crate::matched::matched;

/// What `/sys/block/DISK/stat` tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Also what else the device gives.
    Read,
    /// Also what else the device is given.
    Write,
    /// Blocks are given up.
    Discard,
    /// What was written is made to last.
    Flush,
}

impl Class {
    /// Of a `REQ_OP_…`.
    fn of(operation: u8) -> Self {
        match operation {
            2 => Self::Flush,
            3 => Self::Discard,
            operation if operation & 1 != 0 => Self::Write,
            _ => Self::Read,
        }
    }
}

/// Requests of a class that ended in that time: how many, and how long they took.
///
/// # Errors
///
/// When the two logs disagree.
pub fn ended(logs: &Logs, disk: u32, class: Class, edges: &Range<u64>) -> Result<Bracket> {
    let replay = |events: &[Event]| {
        replay(events, disk, edges, |request, step| {
            is_end(request, step, class)
        })
    };
    pairs(logs, replay).map(|pairs| pairs.into_iter().collect())
}

/// The same by their completion, which comes a little earlier: all that kernels before 6.5 show.
///
/// # Errors
///
/// When the two logs disagree.
pub fn completed(logs: &Logs, disk: u32, class: Class, edges: &Range<u64>) -> Result<Bracket> {
    let is_completed =
        |request: &Request, step| matches!(step, Step::Completed(_)) && is_whole(request, class);
    let replay = |events: &[Event]| replay(events, disk, edges, is_completed);
    pairs(logs, replay).map(|pairs| pairs.into_iter().collect())
}

/// Bytes of a class that completed in that time.
///
/// # Errors
///
/// When the two logs disagree.
pub fn bytes(logs: &Logs, disk: u32, class: Class, edges: &Range<u64>) -> Result<u64> {
    let replay = |events: &[Event]| {
        let requests = of_disk(events, disk, edges);
        let bytes = requests.filter_map(|(_, request, step)| match step {
            Step::Completed(bytes) if Class::of(request.operation) == class => Some(bytes),
            _ => None,
        });
        // As in `pairs`.
        let mut bytes: Vec<u32> = bytes.collect();
        bytes.sort_unstable();
        bytes
    };
    let both = matched(logs, replay, |bytes| *bytes)?;
    Ok(both.iter().map(|(bytes, _)| u64::from(*bytes)).sum())
}

/// From a step of each request to its completion.
///
/// # Errors
///
/// When the two logs disagree.
pub fn completed_since(logs: &Logs, disk: u32, step: Step, edges: &Range<u64>) -> Result<Bracket> {
    let replay = |events: &[Event]| {
        let mut begun: HashMap<u64, u64> = HashMap::new();
        let mut intervals = Vec::new();
        for (ns, request, now) in of_disk(events, disk, edges) {
            if now == step {
                begun.insert(request.address, ns);
            } else if matches!(now, Step::Completed(_)) {
                let begin_ns = begun.remove(&request.address);
                // The kernel's own stamp comes first.
                let has_stamp = step == Step::Issued && request.issued_ns != 0;
                let begin_ns = if has_stamp {
                    Some(request.issued_ns)
                } else {
                    begin_ns
                };
                intervals.extend(begin_ns.map(|begin_ns| Interval::seen(begin_ns, ns)));
            }
        }
        intervals
    };
    pairs(logs, replay).map(|pairs| pairs.into_iter().collect())
}

/// Time that any request was under way, ns, as seen by those that ended: not less, nor more.
///
/// A request that outlasts others shows the gaps between them only when it ends, and these gaps do not count. Two that end at the
/// same moment on two CPUs come in either order, and what they share may count twice.
///
/// # Errors
///
/// When the two logs disagree.
pub fn busy_ns(logs: &Logs, disk: u32, class: Class, edges: &Range<u64>) -> Result<(u64, u64)> {
    let replay = |events: &[Event]| {
        replay(events, disk, edges, |request, step| {
            is_end(request, step, class)
        })
    };
    let mut pairs = pairs(logs, replay)?;
    pairs.sort_unstable_by_key(|pair| pair.early.end_ns);
    let (mut least, mut most) = (0, 0);
    let (mut until_least, mut until_most) = (edges.start, edges.start);
    for at_once in at_once(&pairs) {
        let begin_until = at_once.iter().map(|pair| pair.late.begin_ns).max();
        let begun = begin_until.unwrap_or(0).max(until_most);
        let ended = at_once.iter().map(|pair| pair.early.end_ns).max();
        least += ended.unwrap_or(0).saturating_sub(begun);
        let each = at_once.iter().map(|pair| {
            let begun = pair.early.begin_ns.max(until_least);
            pair.late.end_ns.saturating_sub(begun)
        });
        most += each.sum::<u64>();
        let ends = || at_once.iter().map(|pair| pair.late.end_ns);
        until_least = until_least.max(ends().min().unwrap_or(0));
        until_most = until_most.max(ends().max().unwrap_or(0));
    }
    Ok((least, most))
}

/// Groups of those whose ends, as far as the logs tell, may have changed places; `pairs` are in the order of their ends.
fn at_once(pairs: &[Pair]) -> Vec<&[Pair]> {
    let mut groups = Vec::new();
    let (mut first, mut until) = (0, 0);
    for (at, pair) in pairs.iter().enumerate() {
        if pair.early.end_ns >= until && at > first {
            groups.push(&pairs[first..at]);
            first = at;
        }
        until = until.max(pair.late.end_ns);
    }
    groups.push(&pairs[first..]);
    groups
}

fn pairs(logs: &Logs, replay: impl Fn(&[Event]) -> Vec<Interval>) -> Result<Vec<Pair>> {
    // Ends on two CPUs may change places; which is whose, the beginning tells.
    let replay = |events: &[Event]| {
        let mut found = replay(events);
        found.sort_by_key(|one| (one.begin_ns, one.end_ns));
        found
    };
    let both = matched(logs, replay, |_| ()).context("block requests")?;
    Ok(both
        .into_iter()
        .map(|(early, late)| Pair::of(early, late))
        .collect())
}

fn of_disk<'a>(
    events: &'a [Event],
    disk: u32,
    edges: &'a Range<u64>,
) -> impl Iterator<Item = (u64, Request, Step)> + 'a {
    let inside = events.iter().filter(|event| edges.contains(&event.ns));
    inside.filter_map(move |event| match event.kind {
        Kind::Request { step, request } if request.disk == disk => Some((event.ns, request, step)),
        _ => None,
    })
}

fn replay(
    events: &[Event],
    disk: u32,
    edges: &Range<u64>,
    is_end: impl Fn(&Request, Step) -> bool,
) -> Vec<Interval> {
    let ends = of_disk(events, disk, edges).filter(|(_, request, step)| is_end(request, *step));
    ends.map(|(ns, request, _)| Interval::seen(request.start_ns, ns))
        .collect()
}

fn is_end(request: &Request, step: Step, class: Class) -> bool {
    let is_last = match class {
        Class::Flush => matches!(step, Step::Completed(_)),
        _ => step == Step::Done,
    };
    is_last && is_whole(request, class)
}

fn is_whole(request: &Request, class: Class) -> bool {
    Class::of(request.operation) == class && (class == Class::Flush || !request.is_in_flush)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ns: u64, start_ns: u64, operation: u8, step: Step) -> Event {
        let request = Request {
            address: start_ns,
            disk: 7,
            start_ns,
            issued_ns: 0,
            operation,
            is_in_flush: false,
        };
        let kind = Kind::Request { step, request };
        Event { ns, cpu: 0, kind }
    }

    #[test]
    fn a_request_that_outlasts_others_does_not_close_the_gaps_between_them() {
        let log = |later: u64| {
            vec![
                event(30 + later, 20, 0, Step::Done),
                event(50 + later, 10, 0, Step::Done),
                event(80 + later, 60, 0, Step::Done),
                // At the same moment as the one before it.
                event(82 + later, 70, 0, Step::Done),
            ]
        };
        let logs = Logs {
            before: log(0),
            after: log(4),
            missed: 0,
        };
        let busy = busy_ns(&logs, 7, Class::Read, &(0..100)).expect("logs that agree");
        let most = (34 - 20) + (54 - 34) + (84 - 60) + (86 - 70);
        assert_eq!(busy, ((30 - 20) + (50 - 34) + (82 - 70), most));
    }

    #[test]
    fn requests_are_busy_together() {
        let events = vec![
            event(15, 10, 0, Step::Issued),
            event(16, 12, 0, Step::Issued),
            event(30, 10, 0, Step::Completed(4096)),
            event(31, 10, 0, Step::Done),
            event(40, 12, 0, Step::Completed(4096)),
            event(41, 12, 0, Step::Done),
            event(60, 50, 2, Step::Completed(0)),
        ];
        let logs = Logs {
            before: events.clone(),
            after: events,
            missed: 0,
        };
        let of = |class| ended(&logs, 7, class, &(0..100)).expect("the same log");
        assert!(of(Class::Read).holds(2, 21 + 29));
        assert!(of(Class::Flush).holds(1, 10));
        assert_eq!(of(Class::Write).count, 0);
        let busy = busy_ns(&logs, 7, Class::Read, &(0..100)).expect("the same log");
        assert_eq!(busy, (31, 31));
        let device = completed_since(&logs, 7, Step::Issued, &(0..100)).expect("the same log");
        assert!(device.holds(2, 15 + 24));
        let bytes = bytes(&logs, 7, Class::Read, &(0..100)).expect("the same log");
        assert_eq!(bytes, 8192);
    }
}
