//! Time off the CPU, as offcputime counts it where a thread itself says that it goes on (`sched_exit_tp`, Linux 6.17): from switch to
//! switch. An end that no switch showed lies between what its CPU switched last and when the thread left it.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};

use crate::Logs;
use crate::bracket::{Bracket, Interval, Intervals};
use crate::event::{Event, Kind};

/// Of a thread that slept at both edges of the tool's window.
///
/// # Errors
///
/// When the two logs disagree.
pub fn intervals(logs: &Logs, tid: u32, edges: &Range<u64>) -> Result<Bracket> {
    let of = |events: &[Event]| replay(events, tid, edges);
    Bracket::of(&of(&logs.before), &of(&logs.after))
        .with_context(|| format!("times of thread {tid} off the CPU"))
}

fn replay(events: &[Event], tid: u32, edges: &Range<u64>) -> Intervals {
    let mut intervals = Intervals::default();
    let mut last_ns = HashMap::new();
    let mut since = Some(edges.start);
    for event in events.iter().filter(|event| edges.contains(&event.ns)) {
        let Kind::Switch { prev, next, .. } = event.kind else {
            continue;
        };
        if prev == tid {
            let earliest_ns = last_ns.get(&event.cpu).copied().unwrap_or(0);
            let hidden = since.map(|begin_ns| Interval {
                begin_ns,
                end_ns: earliest_ns.max(begin_ns),
                end_at_most_ns: event.ns,
            });
            intervals.counted.extend(hidden);
            since = Some(event.ns);
        }
        if next == tid {
            let begin = since.take();
            let interval = begin.map(|begin_ns| Interval::seen(begin_ns, event.ns));
            intervals.counted.extend(interval);
        }
        last_ns.insert(event.cpu, event.ns);
    }
    let last = since.map(|begin_ns| Interval::seen(begin_ns, edges.end));
    intervals.counted.extend(last);
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    #[test]
    fn switches_bound_intervals() {
        let events = [
            switch(10, 0, 7, false),
            switch(20, 7, 8, false),
            switch(50, 8, 7, false),
            switch(60, 7, 0, true),
            // The window is over.
            switch(80, 0, 7, true),
        ];
        let expected = [(5, 10), (20, 50), (60, 75)].map(|(from, to)| Interval::seen(from, to));
        assert_eq!(replay(&events, 7, &(5..75)).counted, expected);
    }

    #[test]
    fn hidden_end_has_bounds() {
        let events = [
            switch(10, 0, 7, false),
            switch(20, 7, 8, false),
            switch(50, 8, 9, false),
            // 9 went to 7 unseen.
            switch(70, 7, 0, false),
            switch(90, 0, 7, false),
        ];
        let hidden = Interval {
            begin_ns: 20,
            end_ns: 50,
            end_at_most_ns: 70,
        };
        let counted = replay(&events, 7, &(10..100)).counted;
        assert_eq!(counted[1..], [hidden, Interval::seen(70, 90)]);
    }
}
