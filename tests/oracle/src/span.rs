//! Times of one thread that begin and end with events of the scheduler.

use std::ops::Range;

use anyhow::Result;

use crate::Logs;
use crate::bracket::{Interval, Pair};
use crate::event::Event;
use crate::matched::matched;

/// A time off the CPU, or on a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// As both logs have it.
    pub pair: Pair,
    /// It began when the thread left a CPU that it went on wanting.
    pub was_runnable: bool,
    /// No switch showed its end, which lies between what its CPU switched last and when the thread left it: some kernels hide
    /// switches from BPF.
    pub is_hidden: bool,
}

impl Span {
    /// It began in that time, whatever the log.
    pub fn begins_in(&self, time: &Range<u64>) -> bool {
        time.contains(&self.pair.early.begin_ns) && time.contains(&self.pair.late.begin_ns)
    }
}

/// In one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Single {
    pub(crate) interval: Interval,
    pub(crate) was_runnable: bool,
    pub(crate) is_hidden: bool,
}

impl Single {
    pub(crate) fn seen(begin_ns: u64, was_runnable: bool, end_ns: u64) -> Self {
        Self {
            interval: Interval::seen(begin_ns, end_ns),
            was_runnable,
            is_hidden: false,
        }
    }

    /// `earliest_ns`: what its CPU switched last.
    pub(crate) fn hidden(
        begin_ns: u64,
        was_runnable: bool,
        earliest_ns: u64,
        latest_ns: u64,
    ) -> Self {
        Self {
            interval: Interval {
                begin_ns,
                end_ns: earliest_ns.max(begin_ns),
                end_at_most_ns: latest_ns,
            },
            was_runnable,
            is_hidden: true,
        }
    }
}

/// The same spans as both logs have them.
///
/// # Errors
///
/// As [`matched`].
pub(crate) fn spans(logs: &Logs, replay: impl Fn(&[Event]) -> Vec<Single>) -> Result<Vec<Span>> {
    let both = matched(logs, replay, |one| (one.was_runnable, one.is_hidden))?;
    let spans = both.into_iter().map(|(early, late)| Span {
        pair: Pair::of(early.interval, late.interval),
        was_runnable: early.was_runnable,
        is_hidden: early.is_hidden,
    });
    Ok(spans.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    #[test]
    fn logs_that_differ_are_refused() {
        let logs = Logs {
            before: vec![switch(10, 7, 0, true)],
            after: vec![switch(11, 7, 0, false)],
            missed: 0,
        };
        let kind = |events: &[Event]| match events[0].kind {
            crate::Kind::Switch { runnable, .. } => vec![Single::seen(0, runnable, 1)],
            _ => Vec::new(),
        };
        spans(&logs, kind).expect_err("one was runnable");
        let logs = Logs {
            after: Vec::new(),
            ..logs
        };
        spans(&logs, |events| {
            vec![Single::seen(0, false, 1); events.len()]
        })
        .expect_err("one has none");
    }
}
