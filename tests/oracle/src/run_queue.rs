//! Waits for a CPU, as runqlat counts them: from a wakeup, or from having to leave a CPU, until the thread runs.

use anyhow::{Context, Result};

use crate::Logs;
use crate::bracket::{Bracket, Interval, Intervals};
use crate::event::{Event, Kind};

/// Of a thread that slept at both edges of the logs.
///
/// # Errors
///
/// When the two logs disagree.
pub fn waits(logs: &Logs, tid: u32) -> Result<Bracket> {
    Bracket::of(&replay(&logs.before, tid), &replay(&logs.after, tid))
        .with_context(|| format!("waits of thread {tid} for a CPU"))
}

/// A wait whose end was not seen is over when the thread is seen to leave a CPU, and in no sum: when it ended is not known.
fn replay(events: &[Event], tid: u32) -> Intervals {
    let mut waits = Intervals::default();
    let mut since = None;
    let mut runs = false;
    for event in events {
        match event.kind {
            Kind::Wakeup { tid: woken } if woken == tid && !runs => {
                since.get_or_insert(event.ns);
            }
            Kind::Switch {
                prev,
                next,
                runnable,
            } => {
                if prev == tid {
                    waits.hidden += u64::from(since.is_some());
                    since = runnable.then_some(event.ns);
                    runs = false;
                }
                if next == tid {
                    let begin = since.take();
                    let wait = begin.map(|begin_ns| Interval::seen(begin_ns, event.ns));
                    waits.counted.extend(wait);
                    runs = true;
                }
            }
            Kind::Wakeup { .. } => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    fn wakeup(ns: u64, tid: u32) -> Event {
        let kind = Kind::Wakeup { tid };
        Event { ns, cpu: 1, kind }
    }

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
        let waits = replay(&events, 7);
        let expected = [Interval::seen(10, 15), Interval::seen(20, 50)];
        assert_eq!(waits.counted, expected);
        assert_eq!(waits.hidden, 0);
    }

    #[test]
    fn wait_with_hidden_end_is_in_no_sum() {
        let events = [
            wakeup(10, 7),
            // It must have been switched in meanwhile.
            switch(30, 7, 8, true),
            switch(40, 8, 7, true),
        ];
        let waits = replay(&events, 7);
        assert_eq!(waits.hidden, 1);
        assert_eq!(waits.counted, [Interval::seen(30, 40)]);
    }
}
