//! A thread's waits for a CPU: runqlat's beside those of the log of the kernel's events.

use oracle::run_queue::waits;
use oracle::{Bracket, Logs, Span};

use crate::prelude::*;

pub(crate) fn group(report: &Value, tid: u64) -> &Value {
    let groups = list(report, "groups");
    let mut own = groups.iter().filter(|group| group["tid"] == tid);
    own.next().unwrap_or(&Value::Null)
}

/// runqlat -L has as many waits of the thread as the logs have that `wanted` holds for, in a sum inside their bracket. Gives the
/// number of those whose end no switch showed.
pub(crate) fn assert_waits(
    report: &Value,
    logs: &Logs,
    tid: u64,
    wanted: impl Fn(&Span) -> bool,
) -> u64 {
    let thread = u32::try_from(tid).expect("a thread ID");
    let spans = waits(logs, thread).expect("logs that agree");
    let (hidden, seen): (Vec<Span>, Vec<Span>) = spans
        .into_iter()
        .filter(wanted)
        .partition(|wait| wait.is_hidden);
    let truth: Bracket = seen.iter().map(|wait| wait.pair).collect();
    let group = group(report, tid);
    let figure = |name: &str| group[name].as_u64().unwrap_or(0);
    let found = (figure("count"), figure("sum_ns"));
    let what = format!("waits of thread {tid}");
    assert_bracketed(what, found, &truth, format!("{hidden:?}"));
    hidden.len() as u64
}

/// All of the tool's losses are waits whose end no switch showed.
pub(crate) fn assert_only_unseen(report: &Value, hidden: u64) {
    for (loss, count) in report["losses"].as_object().expect("losses") {
        let truth = if loss == "unseen" { hidden } else { 0 };
        assert_eq!(*count, truth, "{loss}: {}", number(&report["losses"], loss));
    }
}
