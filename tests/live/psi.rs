//! pressure beside the kernel's totals, read just outside and just inside its interval, and a log of its events.

use std::fs;
use std::ops::{Range, RangeInclusive};

use oracle::{Below, Bracket, Engine, Logs, Span, offcpu, run_queue};

use crate::kernel::{id_of, tasks};
use crate::prelude::*;

/// Time that some tasks were stalled, ns, by a pressure file.
fn some_ns(file: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let some = text.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.split_once("total=")?.1.parse::<u64>().ok());
    1_000 * total.unwrap_or_else(|| panic!("no total in {text}"))
}

/// IDs of a process's threads.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    tasks(pid).iter().filter_map(|task| id_of(task)).collect()
}

/// Threads that sleep at both edges have waited so long for a CPU, by the log.
pub(crate) fn assert_waits(logs: &Logs, tids: &[u32], found_ns: u64) {
    let waits = tids.iter().flat_map(|tid| {
        let waits = run_queue::waits(logs, *tid).expect("logs that agree");
        waits.into_iter().filter(|wait| !wait.is_hidden)
    });
    let truth: Bracket = waits.map(|wait| wait.pair).collect();
    assert_within(
        "ns waited",
        found_ns,
        truth.least_ns..=truth.most_ns,
        "the log",
    );
}

/// A workload under the tool.
pub(crate) struct Bracketed {
    pub(crate) report: Value,
    pub(crate) results: Vec<Value>,
    /// Between what the kernel's total grew inside the interval, and from before to after it, ns.
    pub(crate) some_ns: RangeInclusive<u64>,
    logs: Logs,
    tids: Vec<u32>,
    pid: u32,
}

impl Bracketed {
    /// What the tool says of PSI.
    pub(crate) fn assert_some(&self, resource: &str) {
        let found = number(&self.report["resources"][resource], "psi.some.lost_ns");
        let bounds = self.some_ns.clone();
        assert_within(
            format!("some of {resource}, ns"),
            found,
            bounds,
            &self.report,
        );
        assert!(*self.some_ns.start() > 0, "no pressure on {resource}");
    }

    /// What it says that the workload's threads waited for a CPU.
    pub(crate) fn assert_waits(&self, pid: u32, found_ns: u64) {
        assert_eq!(pid, self.pid);
        assert_waits(&self.logs, &self.tids, found_ns);
    }

    /// What it says that one thread slept in that time, from leaving its CPU to being woken.
    pub(crate) fn assert_asleep(&self, tid: u32, worked: &Range<u64>, found_ns: u64) {
        let edges = number(&self.report, "start_ns")..number(&self.report, "end_ns");
        let slept = |span: &Span| !span.was_runnable && span.begins_in(worked);
        let sum = |spans: &[Span], is_sure: &dyn Fn(&Span) -> bool| -> Bracket {
            let spans = spans.iter().filter(|span| slept(span) && is_sure(span));
            spans.map(|span| span.pair).collect()
        };
        let off = offcpu::absences(&self.logs, tid, &edges).expect("logs that agree");
        let queued = run_queue::waits(&self.logs, tid).expect("logs that agree");
        // Some kernels hide wakeups, too: such a sleep may have been as short as anything.
        let was_woken = |span: &Span| {
            let times = span.pair.early.begin_ns..span.pair.early.end_ns;
            queued.iter().any(|wait| wait.begins_in(&times))
        };
        let is_known = |span: &Span| !span.is_hidden;
        // A sleep whose end no switch showed may be missing.
        let is_whole = |span: &Span| is_known(span) && was_woken(span);
        let least = sum(&off, &is_whole).least_ns - sum(&queued, &|_| true).most_ns;
        let most = sum(&off, &|_| true).most_ns - sum(&queued, &is_known).least_ns;
        assert_within("ns asleep", found_ns, least..=most, "the log");
    }
}

/// Runs a prepared workload under `pressure -j OPTIONS` from "go" to its end, beside a pressure file.
pub(crate) fn bracketed(workload: &mut Workload, options: &str, file: &str) -> Bracketed {
    let pid = workload.pid();
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let outside = some_ns(file);
    let tool = Tool::attached("pressure", format!("-j {options}"));
    let around = below.around().expect("the oracle");
    let inside = some_ns(file);
    let results = workload.work();
    let inside = some_ns(file) - inside;
    tool.interrupt();
    let output = tool.finish();
    let outside = some_ns(file) - outside;
    Bracketed {
        report: output.ok().report(),
        results,
        some_ns: inside..=outside,
        logs: around.take().expect("whole logs"),
        tids: threads(pid),
        pid,
    }
}
