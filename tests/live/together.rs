//! offcputime's, runqlat's and profile's engines over one window: where each thread's time went, by all of them.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;

use oracle::run_queue::waits;
use oracle::{Below, Bracket, Engine, Logs, Pair, Span};

use crate::cpu_times::stolen_samples;
use crate::off_cpu::{Times, sees_hidden, stacks};
use crate::prelude::*;
use crate::run_queue::{assert_waits, group};
use crate::traced::logged;
use crate::trio::{self, PERIOD_NS};

/// Time of a thread off its CPU, runnable and not, by offcputime, ns.
fn off_ns(report: &Value, tid: u64) -> u64 {
    stacks(report, tid).map(weight).sum()
}

/// Time on its CPU: what is left of the window, ns.
fn on_ns(report: &Value, tid: u64) -> u64 {
    number(report, "end_ns") - number(report, "start_ns") - off_ns(report, tid)
}

/// All threads lived from edge to edge: what their rows leave of it is the time that switches showed on a CPU, to the nanosecond.
fn assert_windows_are_full(report: &Value) {
    let accounting = &report["accounting"];
    let of = |field: &str| number(accounting, field);
    let all = list(report, "stacks");
    let tids: BTreeSet<u64> = all.iter().map(|stack| number(stack, "tid")).collect();
    let threads = tids.len() as u64;
    let window_ns = number(report, "end_ns") - number(report, "start_ns");
    assert_eq!(of("threads"), threads, "{accounting}");
    assert_eq!(of("lifetime_ns"), threads * window_ns, "{accounting}");
    let on_ns: u64 = tids.iter().map(|tid| on_ns(report, *tid)).sum();
    assert_eq!(on_ns, of("oncpu_ns") + of("unseen_ns"), "{accounting}");
    for phase in ["blocked_ns", "runqueue_ns"] {
        assert_eq!(sum(all, phase), of(phase), "{phase}: {accounting}");
    }
}

/// No sample of a thread was taken while it was off its CPU, and as many of it as go into its time on one.
fn assert_sampled(report: &Value, tid: u64, off: &[Pair]) {
    let samples = list(report, "moments").iter();
    let own = samples.filter(|sample| number(sample, "tid") == tid);
    let times: Vec<u64> = own.map(|sample| number(sample, "time_ns")).collect();
    let window = number(report, "start_ns")..number(report, "end_ns");
    for time_ns in &times {
        assert!(window.contains(time_ns), "{time_ns}, {window:?}");
        let holds = |pair: &&Pair| (pair.late.begin_ns..pair.early.end_ns).contains(time_ns);
        let away = off.iter().find(holds);
        assert!(away.is_none(), "thread {tid} at {time_ns}: {away:?}");
    }
    let own = list(report, "samples").iter();
    let own = own.filter(|row| number(row, "tid") == tid);
    assert_eq!(sum(own, "samples"), times.len() as u64, "thread {tid}");
    // Each turn on a CPU has one more or one less than its length says, as its begin falls between two ticks.
    let expected = on_ns(report, tid) as f64 / PERIOD_NS as f64;
    let away = 2.0 + 2.0 * ((off.len() + 1) as f64).sqrt();
    let stolen = stolen_samples(1e9 / PERIOD_NS as f64);
    let bounds = expected - away..=expected + away + stolen;
    let found = times.len() as f64;
    assert_within(
        format!("samples of thread {tid}"),
        found,
        bounds,
        report["losses"].clone(),
    );
}

/// A workload from before its work to after it, its threads asleep at both edges.
fn assert_accounts_close(mut workload: Workload) {
    let pid = workload.pid();
    let start = || trio::start(&format!("-p {pid}"));
    let (output, results, logs) = logged(&[Engine::Scheduler], start, &mut workload);
    workload.finish();
    let report = trio::report(&output);
    assert_windows_are_full(&report);
    for thread in &results {
        let tid = number(thread, "tid");
        let times = Times::in_report(&report, &logs, tid, sees_hidden());
        times.assert_inside(&times.bracket(|_| true), |_| true);
        let hidden = assert_waits(&report, &logs, tid, |_| true);
        assert_queues_agree(&report, tid, &logs, hidden);
        assert_sampled(&report, tid, &times.pairs());
    }
}

/// The run queue's time is one, whether offcputime or runqlat says so, up to what lies between their programs at each event.
fn assert_queues_agree(report: &Value, tid: u64, logs: &Logs, hidden: u64) {
    let spans = spans_of(logs, tid);
    let between_ns: u64 = spans.iter().map(|wait| disturbance_ns(&wait.pair)).sum();
    let off = sum(stacks(report, tid), "runqueue_ns");
    let queue = group(report, tid)["sum_ns"].as_u64().unwrap_or(0);
    eprintln!("run queue of {tid}: {off} and {queue} ns, {between_ns} between, {hidden} hidden");
    if hidden == 0 {
        assert!(
            off.abs_diff(queue) <= between_ns,
            "{off}, {queue}, {between_ns}"
        );
    }
}

/// Time between the two logs at a wait's edges, ns.
fn disturbance_ns(pair: &Pair) -> u64 {
    pair.most_ns() - pair.least_ns()
}

fn spans_of(logs: &Logs, tid: u64) -> Vec<Span> {
    let thread = u32::try_from(tid).expect("a thread ID");
    waits(logs, thread).expect("logs that agree")
}

#[test]
fn accounts_of_spinners_close() {
    let _machine = Machine::alone();
    assert_accounts_close(Workload::spinners(4, 1));
}

#[test]
fn accounts_of_waiters_close() {
    let _machine = Machine::alone();
    assert_accounts_close(Workload::start("waiter", "--waits 23 --millis 20"));
}

/// Of a wait, the part inside the window; `None`: nothing in either log.
fn clipped(wait: &Span, window: &Range<u64>) -> Option<Pair> {
    let pair = wait.pair.clipped(window);
    (pair.most_ns() > 0).then_some(pair)
}

/// The window opens and shuts while every thread is on the CPU or waits for it: all engines cut the same time out.
#[test]
fn all_engines_have_one_window() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 4);
    let pid = workload.pid();
    let word = tempfile::tempdir().expect("a directory").keep().join("now");
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tool = trio::start(&format!("1 -p {pid} --when {}", word.display()));
    tool.wait_saying(trio::LOADED);
    let around = below.around().expect("the oracle");
    workload.go();
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(&word, "").expect("a file");
    let report = trio::report(&tool.finish().ok());
    let results = workload.results();
    let logs = around.take().expect("whole logs");
    workload.finish();
    fs::remove_dir_all(word.parent().expect("a directory")).expect("it goes");

    let window = number(&report, "start_ns")..number(&report, "end_ns");
    assert_eq!(window.end - window.start, 1_000_000_000, "by the clock");
    assert_windows_are_full(&report);
    for thread in &results {
        let tid = number(thread, "tid");
        let began = number(thread, "start_ns")..number(thread, "end_ns");
        assert!(
            began.start < window.start && window.end < began.end,
            "{thread}"
        );
        let spans = spans_of(&logs, tid);
        let parts: Vec<Pair> = spans
            .iter()
            .filter_map(|wait| clipped(wait, &window))
            .collect();
        // offcputime has all of it, whatever the edges cut.
        let truth: Bracket = parts.iter().copied().collect();
        let found = (truth.count, sum(stacks(&report, tid), "runqueue_ns"));
        assert_bracketed(format!("offcputime's {tid}"), found, &truth, thread);
        // runqlat has those that began and ended inside, and what is open at the end apart.
        let is_whole = |wait: &&Span| {
            wait.begins_in(&window) && wait.pair.early.end_ns < window.end && !wait.is_hidden
        };
        let whole = |wait: &Span| is_whole(&wait);
        assert_waits(&report, &logs, tid, whole);
        let open = spans.iter().find(|wait| {
            let early = wait.pair.early;
            early.begin_ns < window.end && window.end < early.end_ns
        });
        let open = open.map(|wait| wait.pair.clipped(&window));
        let mut said = list(&report, "open").iter();
        let said = said.find(|wait| number(wait, "tid") == tid);
        let said = said.map(|wait| number(wait, "wait_ns"));
        assert_eq!(open.is_some(), said.is_some(), "{thread}");
        if let (Some(pair), Some(said)) = (open, said) {
            let bounds = pair.least_ns()..=pair.most_ns();
            assert_within(format!("open wait of {tid}"), said, bounds, thread);
        }
        assert_sampled(&report, tid, &parts);
    }
}

/// Runs the three, within a budget in percent, over a storm of wakeups.
fn looked_at(percent: f64) -> Value {
    let mut workload = Workload::start("waker", "--storm --cpu 0 --seconds 4");
    let pid = workload.pid();
    let tool = trio::start(&format!("--max-overhead {percent} -p {pid}"));
    tool.wait_attached();
    workload.work();
    let output = tool.end();
    workload.finish();
    trio::report(&output)
}

#[test]
fn a_budget_opens_and_shuts_all_windows_together() {
    let _machine = Machine::alone();
    let report = looked_at(2.0);
    let windows: Vec<Vec<u64>> = list(&report, "windows")
        .iter()
        .map(|window| serde_json::from_value(window.clone()).expect("two edges"))
        .collect();
    assert!(windows.len() >= 5, "{windows:?}");
    let open_ns: u64 = windows.iter().map(|edges| edges[1] - edges[0]).sum();
    assert_eq!(number(&report, "cost.budget.open_ns"), open_ns);
    let of = |field: &str| number(&report["accounting"], field);
    // offcputime had its threads for all of each window, by the clock.
    let elapsed_ns = number(&report, "end_ns") - number(&report, "start_ns");
    let lifetime_ns = of("threads") * elapsed_ns;
    let rounded = lifetime_ns.abs_diff(of("lifetime_ns"));
    assert!(
        rounded <= lifetime_ns / 1_000_000,
        "{lifetime_ns}, {}",
        of("lifetime_ns")
    );
    let phases = ["oncpu_ns", "runqueue_ns", "blocked_ns", "unseen_ns"];
    let phases_ns: u64 = phases.iter().map(|phase| of(phase)).sum();
    assert!(phases_ns.abs_diff(of("lifetime_ns")) <= 4, "{report}");
    // profile's samples are of the same windows,
    let samples = list(&report, "moments");
    for sample in samples {
        let time_ns = number(sample, "time_ns");
        let is_in = |edges: &Vec<u64>| (edges[0]..edges[1]).contains(&time_ns);
        assert!(windows.iter().any(is_in), "{time_ns}: {windows:?}");
    }
    // and stand for as much time on CPUs as offcputime found.
    let sampled_ns = sum(list(&report, "samples"), "samples") * PERIOD_NS;
    let ratio = sampled_ns as f64 / of("oncpu_ns") as f64;
    let away = 4.0 / (samples.len() as f64).sqrt();
    let what = "profile's time by offcputime's";
    assert_within(
        what,
        ratio,
        1.0 - away..=1.0 + away,
        report["samples"].clone(),
    );
    // runqlat has waits that end in a window, offcputime what lies in it of all.
    let queued_ns = sum(list(&report, "groups"), "sum_ns");
    let ratio = queued_ns as f64 / of("runqueue_ns") as f64;
    let what = "runqlat's time by offcputime's";
    assert_within(what, ratio, 0.6..=1.6, report["groups"].clone());
}

#[test]
#[ignore = "statistical: make truth"]
fn all_together_keep_one_budget() {
    let _machine = Machine::alone();
    let report = looked_at(1.0);
    let budget = &report["cost"]["budget"];
    let percent = budget["spent_percent"].as_f64().expect("what it cost");
    assert_within("% of the CPUs", percent, 0.2..=1.0, budget.clone());
}
