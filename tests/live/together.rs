//! offcputime's, runqlat's and profile's engines over one window: where each thread's time went, by all of them.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use oracle::bracket::Interval;
use oracle::run_queue::waits;
use oracle::ticks::Ticks;
use oracle::{Below, Bracket, Engine, Logs, Pair, Span};

use crate::kernel::{id_of, tasks};
use crate::off_cpu::{Times, sees_hidden, stacks};
use crate::prelude::*;
use crate::run_queue::{assert_waits, group};
use crate::ticks::{assert_ticks, clock};
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
fn assert_sampled(report: &Value, tid: u64, off: &[Pair], ticks: &Ticks) {
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
    let thread = u32::try_from(tid).expect("a thread ID");
    assert_ticks(times.len() as u64, ticks, thread, &window);
}

/// A workload from before its work to after it, its threads asleep at both edges.
fn assert_accounts_close(start: fn() -> Workload) {
    let _machine = Machine::alone();
    let mut workload = start();
    let pid = workload.pid();
    let start = || trio::start(&format!("-p {pid}"));
    let clock = clock(1_000_000_000 / PERIOD_NS);
    let (output, results, logs) = logged(&[Engine::Scheduler], start, &mut workload);
    let ticks = clock.take().expect("a whole log");
    workload.finish();
    let report = trio::report(&output);
    assert_windows_are_full(&report);
    for thread in &results {
        let tid = number(thread, "tid");
        let times = Times::in_report(&report, &logs, tid, sees_hidden());
        times.assert_inside(&times.bracket(|_| true), |_| true);
        let hidden = assert_waits(&report, &logs, tid, |_| true);
        assert_queues_agree(&report, tid, &logs, hidden);
        assert_sampled(&report, tid, &times.pairs(), &ticks);
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
    assert_accounts_close(|| Workload::spinners(4, 1));
}

#[test]
fn accounts_of_waiters_close() {
    assert_accounts_close(|| Workload::start("waiter", "--waits 23 --millis 20"));
}

/// A workload that works for much longer than the window: it opens and shuts amid that.
fn assert_one_window(start: fn() -> Workload) {
    let _machine = Machine::alone();
    let mut workload = start();
    let pid = workload.pid();
    let word = tempfile::tempdir().expect("a directory");
    let word_file = word.path().join("now");
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tool = trio::start(&format!("1 -p {pid} --when {}", word_file.display()));
    tool.wait_saying(trio::LOADED);
    let clock = clock(1_000_000_000 / PERIOD_NS);
    let around = below.around().expect("the oracle");
    workload.go();
    thread::sleep(Duration::from_millis(300));
    fs::write(&word_file, "").expect("a file");
    let report = trio::report(&tool.finish().ok());
    let logs = around.take().expect("whole logs");
    let ticks = clock.take().expect("a whole log");
    let threads = tasks(pid);
    drop(workload);

    let window = number(&report, "start_ns")..number(&report, "end_ns");
    assert_eq!(window.end - window.start, 1_000_000_000, "by the clock");
    assert_windows_are_full(&report);
    for tid in threads.iter().filter_map(|task| id_of(task)).map(u64::from) {
        let waits = spans_of(&logs, tid);
        let clipped = waits.iter().map(|wait| wait.pair.clipped(&window));
        let parts: Vec<Pair> = clipped.filter(|part| part.most_ns() > 0).collect();
        // offcputime has all of it, whatever the edges cut.
        let truth: Bracket = parts.iter().copied().collect();
        let found = (truth.count, sum(stacks(&report, tid), "runqueue_ns"));
        assert_bracketed(format!("run queue of {tid}"), found, &truth, "");
        assert_whole_waits(&report, tid, &waits, &window);
        assert_open_wait(&report, tid, &waits, &window);
        assert_sampled(&report, tid, &parts, &ticks);
    }
}

/// runqlat has the waits that began and ended inside. An edge may lie between the logs' moments of one event.
fn assert_whole_waits(report: &Value, tid: u64, waits: &[Span], window: &Range<u64>) {
    let is_whole = |one: &Interval| window.start <= one.begin_ns && one.end_ns < window.end;
    let seen = || waits.iter().filter(|wait| !wait.is_hidden);
    let pairs = |wanted: &dyn Fn(&Pair) -> bool| -> Bracket {
        let pairs = seen().map(|wait| wait.pair);
        pairs.filter(|pair| wanted(pair)).collect()
    };
    let certain = pairs(&|pair| is_whole(&pair.early) && is_whole(&pair.late));
    let possible = pairs(&|pair| is_whole(&pair.early) || is_whole(&pair.late));
    let group = group(report, tid);
    let figure = |name: &str| group[name].as_u64().unwrap_or(0);
    let counts = certain.count..=possible.count;
    assert_within(format!("waits of {tid}"), figure("count"), counts, group);
    let sums = certain.least_ns..=possible.most_ns;
    assert_within(format!("their time, {tid}"), figure("sum_ns"), sums, group);
}

/// It has the wait that is open at the end, too.
fn assert_open_wait(report: &Value, tid: u64, waits: &[Span], window: &Range<u64>) {
    let is_open = |one: &Interval| one.begin_ns < window.end && window.end < one.end_ns;
    let mut said = list(report, "open").iter();
    let said = said.find(|wait| number(wait, "tid") == tid);
    let said = said.map(|wait| number(wait, "wait_ns"));
    let mut pairs = waits.iter().map(|wait| &wait.pair);
    let open = pairs.find(|pair| is_open(&pair.early) || is_open(&pair.late));
    let bounds = open.map_or(0..=0, |pair| {
        let since_ns = |ns: u64| window.end.saturating_sub(ns);
        let certain = is_open(&pair.early) && is_open(&pair.late);
        let least_ns = if certain {
            since_ns(pair.late.begin_ns)
        } else {
            0
        };
        least_ns..=since_ns(pair.early.begin_ns)
    });
    let what = format!("open wait of {tid}");
    assert_within(what, said.unwrap_or(0), bounds, &report["open"]);
}

#[test]
fn one_window_cuts_waits_for_a_cpu() {
    assert_one_window(|| Workload::spinners(4, 60));
}

#[test]
fn one_window_cuts_sleep() {
    assert_one_window(|| Workload::start("waiter", "--kinds sleep,mutex --waits 60000 --millis 1"));
}

/// Runs the three, within a budget in percent, over a storm of wakeups.
fn looked_at(percent: f64) -> Value {
    let mut workload = Workload::start("waker", "--storm --cpu 0 --seconds 5");
    let pid = workload.pid();
    let tool = trio::start(&format!("--max-overhead {percent} -p {pid}"));
    tool.wait_attached();
    workload.work();
    // The costlier a window, the later comes the next.
    tool.wait_saying_times(2, trio::TAKEN);
    let output = tool.end();
    workload.finish();
    trio::report(&output)
}

/// So little is allowed that an idle machine would be looked at in windows.
#[test]
fn a_budget_opens_and_shuts_all_windows_together() {
    let _machine = Machine::alone();
    let report = looked_at(0.2);
    let edges = |window: &Value| serde_json::from_value(window.clone()).expect("two edges");
    let windows: Vec<[u64; 2]> = list(&report, "windows").iter().map(edges).collect();
    assert!(windows.len() >= 2, "{}", report["cost"]);
    let open_ns: u64 = windows.iter().map(|[start, end]| end - start).sum();
    assert_eq!(number(&report, "cost.budget.open_ns"), open_ns);
    // offcputime had its threads for all of each window, by the clock.
    let of = |field: &str| number(&report["accounting"], field);
    let elapsed_ns = number(&report, "end_ns") - number(&report, "start_ns");
    let lifetime_ns = of("threads") * elapsed_ns;
    let rounding = 0..=lifetime_ns / 1_000_000;
    let away = lifetime_ns.abs_diff(of("lifetime_ns"));
    assert_within("ns of lifetime", away, rounding, &report["accounting"]);
    let phases = ["oncpu_ns", "runqueue_ns", "blocked_ns", "unseen_ns"];
    let phases_ns: u64 = phases.iter().map(|phase| of(phase)).sum();
    let away = phases_ns.abs_diff(of("lifetime_ns"));
    assert_within("ns of phases", away, ..=4, &report["accounting"]);
    // profile's samples are of the same windows.
    for sample in list(&report, "moments") {
        let time_ns = number(sample, "time_ns");
        let mut around = windows
            .iter()
            .filter(|[start, end]| (*start..*end).contains(&time_ns));
        assert!(around.next().is_some(), "{time_ns}: {windows:?}");
    }
    assert!(number(&report["accounting"], "runqueue_ns") > 0);
}

#[test]
#[ignore = "statistical: make truth"]
fn within_a_budget_all_estimate_the_same() {
    let _machine = Machine::alone();
    // Looking all the time costs twice as much.
    let allowed = 0.8;
    let report = looked_at(allowed);
    let budget = &report["cost"]["budget"];
    let percent = budget["spent_percent"].as_f64().expect("what it cost");
    assert_within("% of the CPUs", percent, ..=allowed, budget);
    let ratio = |found_ns: u64, phase: &str| {
        let phase_ns = number(&report["accounting"], phase);
        found_ns as f64 / phase_ns as f64
    };
    let sampled_ns = sum(list(&report, "samples"), "samples") * PERIOD_NS;
    let away = 4.0 / (list(&report, "moments").len() as f64).sqrt();
    let what = "profile's time by offcputime's";
    let bounds = 1.0 - away..=1.0 + away;
    assert_within(what, ratio(sampled_ns, "oncpu_ns"), bounds, budget);
    // runqlat has waits that end in a window, offcputime what lies in it of all: each says how far that may be off.
    let estimate = |of: &str, figure: &str| {
        let figure = report["margins"][of][figure].as_f64();
        figure.expect("an estimate with a margin")
    };
    let away = (estimate("queue", "total") - estimate("off", "total")).abs();
    let margins = estimate("queue", "margin_95") + estimate("off", "margin_95");
    assert_within(
        "ns of run queue",
        away,
        ..=2.0 * margins,
        &report["margins"],
    );
}
