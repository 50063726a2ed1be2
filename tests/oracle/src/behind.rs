//! Whom waits for a CPU were behind, as runqlat shares them out: whoever ran, while a thread waited, on the CPU that it got.
//!
//! A turn on a CPU belongs to the thread that is seen to leave it, since the switch seen there before.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use crate::Logs;
use crate::bracket::{Bracket, Interval, Pair};
use crate::event::{Event, Kind};
use crate::matched::matched;
use crate::run_queue;

/// Turns that the tool looks back on; what lies before them has no name, and the thread ID 0.
const TURNS: usize = 8;

/// What others caused for these threads, which slept at both edges of the logs: by thread ID, as many times, for so long.
///
/// # Errors
///
/// When the two logs disagree.
pub fn culprits(logs: &Logs, tids: &[u32]) -> Result<BTreeMap<u32, Bracket>> {
    let shares = matched(logs, |events| replay(events, tids), |share| share.1)?;
    let mut pairs: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
    for ((early, culprit), (late, _)) in shares {
        let of_culprit = pairs.entry(culprit).or_default();
        of_culprit.push(Pair::of(early, late));
    }
    let brackets = pairs.into_iter();
    Ok(brackets
        .map(|(culprit, pairs)| (culprit, pairs.into_iter().collect()))
        .collect())
}

/// A turn on a CPU that is over.
#[derive(Clone, Copy, Debug)]
struct Turn {
    tid: u32,
    begin_ns: u64,
    end_ns: u64,
}

/// Shares of all waits whose end was seen, in order.
fn replay(events: &[Event], tids: &[u32]) -> Vec<(Interval, u32)> {
    let turns = turns(events);
    let waits = tids.iter().flat_map(|tid| {
        let waits = run_queue::replay(events, *tid).into_iter();
        waits
            .filter(|wait| !wait.is_hidden)
            .map(|wait| (*tid, wait.interval))
    });
    let shares = waits.map(|(tid, wait)| {
        let cpu = cpu_of(events, tid, wait.end_ns);
        shared(&turns[&cpu], &wait)
    });
    shares.flatten().collect()
}

fn turns(events: &[Event]) -> HashMap<u32, Vec<Turn>> {
    let mut turns: HashMap<u32, Vec<Turn>> = HashMap::new();
    for event in events {
        if let Kind::Switch { prev, .. } = event.kind {
            let on_cpu = turns.entry(event.cpu).or_default();
            let begin_ns = on_cpu.last().map_or(0, |turn| turn.end_ns);
            on_cpu.push(Turn {
                tid: prev,
                begin_ns,
                end_ns: event.ns,
            });
        }
    }
    turns
}

/// Where a thread was switched to at that time.
fn cpu_of(events: &[Event], tid: u32, ns: u64) -> u32 {
    let is_its = |event: &&Event| {
        event.ns == ns && matches!(event.kind, Kind::Switch { next, .. } if next == tid)
    };
    let first = events.partition_point(|event| event.ns < ns);
    events[first..]
        .iter()
        .find(is_its)
        .map_or(0, |event| event.cpu)
}

/// A wait's shares, latest first.
fn shared(turns: &[Turn], wait: &Interval) -> Vec<(Interval, u32)> {
    let meanwhile = turns.partition_point(|turn| turn.end_ns <= wait.end_ns);
    let mut shares = Vec::new();
    let mut end_ns = wait.end_ns;
    for turn in turns[..meanwhile].iter().rev().take(TURNS) {
        let begin_ns = turn.begin_ns.max(wait.begin_ns);
        if turn.tid != 0 {
            shares.push((Interval::seen(begin_ns, end_ns), turn.tid));
        }
        if turn.begin_ns <= wait.begin_ns {
            return shares;
        }
        end_ns = turn.begin_ns;
    }
    shares.push((Interval::seen(wait.begin_ns, end_ns), 0));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    #[test]
    fn wait_is_shared_among_turns() {
        let events = [
            switch(10, 0, 7, false),
            // 7 waits from here on.
            switch(20, 7, 8, true),
            switch(30, 8, 9, true),
            switch(45, 9, 0, false),
            switch(50, 0, 7, false),
        ];
        let expected = [(Interval::seen(30, 45), 9), (Interval::seen(20, 30), 8)];
        assert_eq!(replay(&events, &[7]), expected);
    }

    #[test]
    fn earlier_turns_have_no_name() {
        let mut events = vec![switch(10, 0, 77, false), switch(20, 77, 1, true)];
        events.extend((1..=9).map(|turn| switch(20 + 10 * u64::from(turn), turn, turn + 1, false)));
        events.push(switch(120, 10, 77, false));
        let shares = replay(&events, &[77]);
        assert_eq!(shares.len(), TURNS + 1);
        assert_eq!(shares[TURNS], (Interval::seen(20, 40), 0));
    }
}
