//! biolatency between two logs of the kernel's events.

use std::ops::Range;
use std::process::Command;

use oracle::{Below, Bracket, Engine, Logs};

use crate::prelude::*;

/// What the tool says of a disk, and what the kernel did.
pub(crate) struct Logged {
    pub(crate) lines: Vec<Value>,
    pub(crate) logs: Logs,
}

/// Runs `work` under `biolatency -j -d DISK OPTIONS`, between two logs.
pub(crate) fn logged(disk: &str, options: &str, work: impl FnOnce()) -> Logged {
    let args = format!("-j -d {disk} {options}");
    logged_as(Tool::command("biolatency", args), work)
}

/// The same of a tool that needs an environment of its own.
pub(crate) fn logged_as(command: Command, work: impl FnOnce()) -> Logged {
    let below = Below::attach(&[Engine::Requests]).expect("the oracle");
    let tool = Tool::spawn("biolatency", command);
    tool.wait_attached();
    let around = below.around().expect("the oracle");
    work();
    Logged {
        lines: tool.end().reports(),
        logs: around.take().expect("whole logs"),
    }
}

impl Logged {
    /// The last line, as JSON.
    pub(crate) fn report(&self) -> &Value {
        let report = self.lines.last().expect("a report");
        assert_few_losses(report);
        report
    }
}

/// The window of a report, ns.
pub(crate) fn window(report: &Value) -> Range<u64> {
    number(report, "start_ns")..number(report, "end_ns")
}

/// So many requests, for so long, are those of the log: exactly, and inside its bracket. While one of our programs is at work on a
/// CPU the kernel keeps another event there from it, and counts that.
pub(crate) fn assert_inside(report: &Value, what: &str, (count, ns): (u64, u64), truth: &Bracket) {
    eprintln!("{what}: {count} requests, {ns} ns; {truth:?}");
    let nested = number(&report["losses"], "nested");
    assert!(
        truth.holds_without(nested, count, ns),
        "{what}: {count} requests, {ns} ns; {truth:?}: {report}"
    );
}

/// Next to nothing is lost. An interrupt that meets a program of ours at work is an event lost: one in a hundred at most.
pub(crate) fn assert_few_losses(report: &Value) {
    let runs = number(&report["cost"], "bpf_runs");
    for (loss, count) in report["losses"].as_object().expect("losses") {
        let most = match loss.as_str() {
            "unseen" | "unseen_bytes" | "unattributed" => u64::MAX,
            "nested" => runs / 100,
            _ => 0,
        };
        assert!(count.as_u64() <= Some(most), "{loss}: {count}");
    }
}
