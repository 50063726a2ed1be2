//! Time off the CPU, as offcputime counts it: from switch to switch.
//!
//! A thread itself may say that it goes on (`sched_exit_tp`, Linux 6.18): then the tool has the times whose end no switch showed,
//! too. Otherwise it counts a loss for each.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};

use crate::Logs;
use crate::event::{Event, Kind};
use crate::matched::matched;
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

/// Number of waits of that thread that a switch was seen to end and no wakeup before it: some kernels hide the wakeups of an
/// interrupt upon tasks of their own. The wait that is open when the tool's window begins is none: its wakeup may be older.
///
/// # Errors
///
/// When the two logs disagree.
pub fn unwoken(logs: &Logs, tid: u32, edges: &Range<u64>) -> Result<u64> {
    let both = matched(logs, |events| replay_unwoken(events, tid, edges), |_| ());
    let both = both.with_context(|| format!("wakeups of thread {tid}"))?;
    Ok(both.len() as u64)
}

fn replay_unwoken(events: &[Event], tid: u32, edges: &Range<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut waits = false;
    for event in events.iter().filter(|event| edges.contains(&event.ns)) {
        match event.kind {
            Kind::Wakeup { tid: woken, .. } if woken == tid => waits = false,
            Kind::Switch { prev, runnable, .. } if prev == tid => waits = !runnable,
            Kind::Switch { next, .. } if next == tid => {
                found.extend(waits.then_some(event.ns));
                waits = false;
            }
            _ => {}
        }
    }
    found
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

    #[test]
    fn wakeups_may_be_hidden() {
        let wakeup = |ns| Event {
            kind: Kind::Wakeup {
                tid: 7,
                is_new: false,
                runs: false,
            },
            ..switch(ns, 0, 0, false)
        };
        let events = [
            // It may have been woken before the window.
            switch(10, 0, 7, false),
            switch(20, 7, 8, true),
            switch(30, 8, 7, false),
            switch(40, 7, 8, false),
            wakeup(45),
            switch(50, 8, 7, false),
            switch(60, 7, 8, false),
            switch(70, 8, 7, false),
            switch(80, 7, 8, false),
        ];
        assert_eq!(replay_unwoken(&events, 7, &(5..75)), [70]);
    }
}
