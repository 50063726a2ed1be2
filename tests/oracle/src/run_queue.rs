//! Waits for a CPU, as runqlat counts them: from a wakeup, or from having to leave a CPU, until the thread runs.
//!
//! A wait whose end no switch showed is over when the thread is seen to leave a CPU. The tool has it in no sum, for when it ended
//! is not known, but counts it as unseen.

use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::Logs;
use crate::event::{Event, Kind};
use crate::span::{self, Single, Span};

/// Of a thread that slept at both edges of the logs, in order.
///
/// # Errors
///
/// When the two logs disagree.
pub fn waits(logs: &Logs, tid: u32) -> Result<Vec<Span>> {
    span::spans(logs, |events| replay(events, tid))
        .with_context(|| format!("waits of thread {tid} for a CPU"))
}

/// The same as lockstat counts it, which takes a wait to begin a little earlier: when the thread is about to be made runnable.
///
/// # Errors
///
/// When the two logs disagree.
pub fn waits_since_waking(logs: &Logs, tid: u32) -> Result<Vec<Span>> {
    let wakes = |kind: &Kind| matches!(kind, Kind::Waking { tid: woken } if *woken == tid);
    span::spans(logs, |events| replay_from(events, tid, wakes))
        .with_context(|| format!("waits of thread {tid} for a CPU"))
}

pub(crate) fn replay(events: &[Event], tid: u32) -> Vec<Single> {
    let wakes =
        |kind: &Kind| matches!(kind, Kind::Wakeup { tid: woken, runs: false, .. } if *woken == tid);
    replay_from(events, tid, wakes)
}

fn replay_from(events: &[Event], tid: u32, wakes: impl Fn(&Kind) -> bool) -> Vec<Single> {
    let mut waits = Vec::new();
    let mut last_ns = HashMap::new();
    let mut since: Option<(u64, bool)> = None;
    let mut runs = false;
    for event in events {
        match event.kind {
            kind if wakes(&kind) && !runs => {
                since.get_or_insert((event.ns, false));
            }
            Kind::Switch {
                prev,
                next,
                runnable,
                ..
            } => {
                if prev == tid {
                    let earliest_ns = last_ns.get(&event.cpu).copied().unwrap_or(0);
                    let hidden = since.map(|(begin_ns, was_runnable)| {
                        Single::hidden(begin_ns, was_runnable, earliest_ns, event.ns)
                    });
                    waits.extend(hidden);
                    since = runnable.then_some((event.ns, true));
                    runs = false;
                }
                if next == tid {
                    let begin = since.take();
                    let wait =
                        begin.map(|(ns, was_runnable)| Single::seen(ns, was_runnable, event.ns));
                    waits.extend(wait);
                    runs = true;
                }
                last_ns.insert(event.cpu, event.ns);
            }
            _ => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{switch, wakeup};

    #[test]
    fn wakeups_and_preemptions_begin_waits() {
        let events = [
            wakeup(10, 7),
            switch(15, 0, 7, true),
            // It runs already.
            wakeup(16, 7),
            switch(20, 7, 8, true),
            // It waits already.
            wakeup(22, 7),
            switch(50, 8, 7, false),
            switch(60, 7, 0, false),
        ];
        let expected = [Single::seen(10, false, 15), Single::seen(20, true, 50)];
        assert_eq!(replay(&events, 7), expected);
    }

    #[test]
    fn wait_with_hidden_end_has_bounds() {
        let events = [
            wakeup(10, 7),
            switch(20, 0, 8, true),
            // It must have been switched in meanwhile.
            switch(30, 7, 8, true),
            switch(40, 8, 7, true),
        ];
        let expected = [
            Single::hidden(10, false, 20, 30),
            Single::seen(30, true, 40),
        ];
        assert_eq!(replay(&events, 7), expected);
    }
}
