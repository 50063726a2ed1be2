//! Time off the CPU, as offcputime counts it: from switch to switch.
//!
//! A thread itself may say that it goes on (`sched_exit_tp`, Linux 6.18): then the tool has the times whose end no switch showed,
//! too. Otherwise it counts a loss for each.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};

use crate::Logs;
use crate::event::{Event, Kind};
use crate::span::{self, Single, Span};

/// Of a thread that slept at both edges of the tool's window, in order.
///
/// # Errors
///
/// When the two logs disagree.
pub fn absences(logs: &Logs, tid: u32, edges: &Range<u64>) -> Result<Vec<Span>> {
    span::spans(logs, |events| replay(events, tid, edges))
        .with_context(|| format!("times of thread {tid} off the CPU"))
}

fn replay(events: &[Event], tid: u32, edges: &Range<u64>) -> Vec<Single> {
    let mut found = Vec::new();
    let mut last_ns = HashMap::new();
    let mut since = Some((edges.start, false));
    for event in events.iter().filter(|event| edges.contains(&event.ns)) {
        let Kind::Switch {
            prev,
            next,
            runnable,
            ..
        } = event.kind
        else {
            continue;
        };
        if prev == tid {
            let earliest_ns = last_ns.get(&event.cpu).copied().unwrap_or(0);
            let hidden = since.map(|(begin_ns, was_runnable)| {
                Single::hidden(begin_ns, was_runnable, earliest_ns, event.ns)
            });
            found.extend(hidden);
            since = Some((event.ns, runnable));
        }
        if next == tid {
            let begin = since.take();
            found.extend(begin.map(|(ns, was_runnable)| Single::seen(ns, was_runnable, event.ns)));
        }
        last_ns.insert(event.cpu, event.ns);
    }
    found.extend(since.map(|(ns, was_runnable)| Single::seen(ns, was_runnable, edges.end)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    #[test]
    fn switches_bound_absences() {
        let events = [
            switch(10, 0, 7, false),
            switch(20, 7, 8, false),
            switch(50, 8, 7, false),
            switch(60, 7, 0, true),
            // The window is over.
            switch(80, 0, 7, true),
        ];
        let expected = [
            Single::seen(5, false, 10),
            Single::seen(20, false, 50),
            Single::seen(60, true, 75),
        ];
        assert_eq!(replay(&events, 7, &(5..75)), expected);
    }

    #[test]
    fn hidden_end_has_bounds() {
        let events = [
            switch(10, 0, 7, false),
            switch(20, 7, 8, true),
            switch(50, 8, 9, false),
            // 9 went to 7 unseen.
            switch(70, 7, 0, false),
            switch(90, 0, 7, false),
        ];
        let found = replay(&events, 7, &(10..100));
        assert_eq!(found[1], Single::hidden(20, true, 50, 70));
        assert_eq!(found[2], Single::seen(70, false, 90));
    }
}
