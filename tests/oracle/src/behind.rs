//! Whom waits for a CPU were behind, as runqlat shares them out: whoever ran, while a thread waited, on the CPU that it got.
//!
//! A turn on a CPU belongs to the thread that is seen to leave it, since the switch seen there before.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use crate::Logs;
use crate::bracket::{Bracket, Interval, Pair};
use crate::event::{Event, Kind};
use crate::run_queue;

/// Turns that the tool looks back on; what lies before them has no name, and the thread ID 0.
const TURNS: usize = 8;

/// What a thread caused for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caused {
    /// Shares of waits that a tool has in any case.
    pub sure: Bracket,
    /// Further ones that it may have: a thread was woken on one CPU just when the turn ended on another, and the logs do not tell
    /// which came first.
    pub perhaps: Bracket,
}

impl Caused {
    /// Looks whether a tool may say so.
    pub fn holds(&self, count: u64, sum_ns: u64) -> bool {
        let counts = self.sure.count..=self.sure.count + self.perhaps.count;
        let most_ns = self.sure.most_ns + self.perhaps.most_ns;
        counts.contains(&count) && (self.sure.least_ns..=most_ns).contains(&sum_ns)
    }
}

/// What others caused for these threads, which slept at both edges of the logs: by thread ID, as many times, for so long.
///
/// # Errors
///
/// The two logs disagree.
pub fn caused(logs: &Logs, tids: &[u32]) -> Result<BTreeMap<u32, Caused>> {
    let turns = [&logs.before, &logs.after].map(|log| turns(log));
    let mut pairs: BTreeMap<u32, [Vec<Pair>; 2]> = BTreeMap::new();
    for tid in tids {
        let waits = run_queue::waits(logs, *tid)?.into_iter();
        for wait in waits.filter(|wait| !wait.is_hidden) {
            let cpu = cpu_of(&logs.before, *tid, wait.pair.early.end_ns);
            for share in shared([&turns[0][&cpu], &turns[1][&cpu]], &wait.pair) {
                let of_culprit = pairs.entry(share.tid).or_default();
                of_culprit[usize::from(!share.is_sure)].push(share.pair);
            }
        }
    }
    let of = |pairs: [Vec<Pair>; 2]| {
        let [sure, perhaps] = pairs.map(|pairs| pairs.into_iter().collect());
        Caused { sure, perhaps }
    };
    Ok(pairs.into_iter().map(|(tid, two)| (tid, of(two))).collect())
}

/// The same of one log, which leaves nothing open.
///
/// # Errors
///
/// As [`caused`].
pub fn culprits(logs: &Logs, tids: &[u32]) -> Result<BTreeMap<u32, Bracket>> {
    let caused = caused(logs, tids)?.into_iter();
    Ok(caused.map(|(tid, caused)| (tid, caused.sure)).collect())
}

/// A turn on a CPU that is over.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    tid: u32,
    begin_ns: u64,
    end_ns: u64,
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

/// A part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    tid: u32,
    pair: Pair,
    is_sure: bool,
}

/// A wait's shares, latest first, by the turns on its CPU in both logs.
fn shared(turns: [&[Turn]; 2], wait: &Pair) -> Vec<Share> {
    let since_ns = [wait.early.begin_ns, wait.late.begin_ns];
    let mut end_ns = [wait.early.end_ns, wait.late.end_ns];
    let meanwhile = [0, 1].map(|log| {
        let ends = |turn: &Turn| turn.end_ns <= end_ns[log];
        &turns[log][..turns[log].partition_point(ends)]
    });
    let mut shares = Vec::new();
    for back in 0..=TURNS {
        // The tool's times of an event lie between the logs'.
        let is_sure = back == 0 || end_ns[0] > since_ns[1];
        if !is_sure && end_ns[1] <= since_ns[0] {
            return shares;
        }
        let turn = |log: usize| {
            let turns: &[Turn] = meanwhile[log];
            turns.len().checked_sub(back + 1).map(|at| turns[at])
        };
        let unnamed = [Turn::default(); 2];
        let named = turn(0).zip(turn(1)).map(<[Turn; 2]>::from);
        let turn = named.filter(|_| back < TURNS).unwrap_or(unnamed);
        let part = |log: usize| {
            let begin_ns = turn[log].begin_ns.max(since_ns[log]);
            Interval::seen(begin_ns, end_ns[log])
        };
        // Nobody is blamed for an idle CPU.
        if turn[0].tid != 0 || back == TURNS {
            shares.push(Share {
                tid: turn[0].tid,
                pair: Pair::of(part(0), part(1)),
                is_sure,
            });
        }
        end_ns = turn.map(|turn| turn.begin_ns);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{switch, wakeup};

    fn found(before: &[Event], after: &[Event]) -> BTreeMap<u32, Caused> {
        let logs = Logs {
            before: before.to_vec(),
            after: after.to_vec(),
            missed: 0,
        };
        caused(&logs, &[7]).expect("logs that agree")
    }

    fn sums(caused: &BTreeMap<u32, Caused>) -> Vec<(u32, u64, u64)> {
        let sums = caused.iter();
        sums.map(|(tid, one)| (*tid, one.sure.count, one.sure.least_ns))
            .collect()
    }

    #[test]
    fn wait_is_shared_among_turns() {
        let events = [
            switch(10, 0, 7, false),
            // 7 waits from here on.
            switch(20, 7, 8, true),
            switch(30, 8, 9, true),
            switch(45, 9, 0, false),
            switch(50, 0, 7, false),
            switch(60, 7, 0, false),
        ];
        let caused = found(&events, &events);
        assert_eq!(sums(&caused), [(8, 1, 10), (9, 1, 15)]);
        assert!(caused[&9].holds(1, 15) && !caused[&9].holds(0, 0));
    }

    #[test]
    fn earlier_turns_have_no_name() {
        let mut events = vec![switch(10, 0, 7, false), switch(20, 7, 101, true)];
        events.extend(
            (1..=9).map(|turn| switch(20 + 10 * u64::from(turn), 100 + turn, 101 + turn, false)),
        );
        events.push(switch(120, 110, 7, false));
        events.push(switch(130, 7, 0, false));
        let caused = found(&events, &events);
        assert_eq!(caused.len(), TURNS + 1);
        assert_eq!(sums(&caused)[0], (0, 1, 20));
    }

    /// 8 leaves the CPU at 30 or 32, and 7 is woken elsewhere at 29 or 31.
    #[test]
    fn turn_that_ends_as_a_wait_begins_is_perhaps_blamed() {
        let log = |late: u64| {
            let mut events = vec![
                switch(10, 0, 8, false),
                wakeup(29 + late, 7),
                switch(30 + late / 2, 8, 9, false),
                switch(45, 9, 7, false),
                switch(60, 7, 0, false),
            ];
            events.sort_by_key(|event| event.ns);
            events
        };
        let caused = found(&log(0), &log(2));
        assert_eq!(sums(&caused), [(8, 0, 0), (9, 1, 14)]);
        let perhaps = &caused[&8];
        assert!(perhaps.holds(0, 0) && perhaps.holds(1, 2) && !perhaps.holds(1, 3));
        assert!(!perhaps.holds(2, 2));
    }
}
