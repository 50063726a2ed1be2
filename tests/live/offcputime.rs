//! offcputime against a log of the kernel's own events, and programs that time their own waits.

use oracle::offcpu;
use serde_json::Value;

use crate::cpu_times::stolen_of;
use crate::kernel::alone;
use crate::slow_disk::SlowDisk;
use crate::tool::Tool;
use crate::traced::{sandwiched, traced};
use crate::workload::{Workload, number};

/// Error allowed per thread and reason.
const TOLERANCE: f64 = 0.01;

fn trace(workload: &str, args: &[&str], options: &[&str]) -> (Value, Vec<Value>) {
    let workload = Workload::start(workload, args);
    let tgid = workload.pid();
    traced("offcputime", workload, tgid, options)
}

pub(crate) fn stacks(report: &Value, tid: u64) -> impl Iterator<Item = &Value> {
    report["stacks"]
        .as_array()
        .expect("stacks")
        .iter()
        .filter(move |stack| stack["tid"] == tid)
}

/// Blocked plus run queue, ns.
fn total(stack: &Value) -> u64 {
    stack["values"]
        .as_array()
        .expect("values")
        .iter()
        .filter_map(Value::as_u64)
        .sum()
}

fn is_in(stack: &Value, function: &str) -> bool {
    let frames = stack["kernel"].as_array().expect("frames");
    frames.iter().any(|frame| {
        frame["name"]
            .as_str()
            .is_some_and(|name| name.contains(function))
    })
}

/// Time of one thread with one reason; waits of the workload's own gate are left out.
pub(crate) fn waited(report: &Value, tid: u64, reason: &str) -> u64 {
    let gate = |stack: &&Value| is_in(stack, "sigtimedwait");
    stacks(report, tid)
        .filter(|stack| stack["reason"] == reason && !gate(stack))
        .map(total)
        .sum()
}

fn assert_close(found: u64, truth: u64, tolerance: f64, what: &str) {
    let (found, truth) = (found as f64, truth as f64);
    assert!(
        (found - truth).abs() <= tolerance * truth,
        "{what}: {found} ns, the program measured {truth} ns"
    );
}

/// A thread's waits, but for `unseen` ns and for what a hypervisor may have had of those that were late.
pub(crate) fn assert_waited(found: u64, thread: &Value, unseen: u64) {
    let off = number(thread, "off_ns");
    let late = stolen_of(number(thread, "late_ns"));
    let (least, most) = (
        (1.0 - TOLERANCE) * off as f64 - (late + unseen) as f64,
        (1.0 + TOLERANCE) * off as f64,
    );
    assert!(
        (least..=most).contains(&(found as f64)),
        "{}: {found} ns, the program measured {off} ns, {late} ns of them perhaps stolen; {unseen} ns lost",
        thread["kind"]
    );
}

#[test]
fn each_kind_of_wait_has_its_reason_and_its_time() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = trace("waiter", &["--waits", "23", "--millis", "20"], &[]);
    assert!(results.len() >= 8);
    for thread in &results {
        let kind = thread["kind"].as_str().expect("a kind");
        let reason = match kind {
            "mutex" | "pmutex" => "futex",
            "epoll" => "poll",
            same => same,
        };
        let preempted = waited(&report, number(thread, "tid"), "preempted");
        let found = waited(&report, number(thread, "tid"), reason) + preempted;
        assert_waited(found, thread, 0);
    }
}

#[test]
fn page_faults_from_disk_are_told_from_reads() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = std::env::current_dir().expect("a directory");
    let dir_arg = dir.to_str().expect("a plain path");
    let mut workload = Workload::start(
        "waiter",
        &[
            "--kinds",
            "pagefault",
            "--disk-waits",
            "101",
            "--dir",
            dir_arg,
        ],
    );
    let pid = workload.pid();
    let tool = Tool::start("offcputime", &["-j", "-m", "0", "-p", &pid.to_string()]);
    tool.wait_attached();
    let slow = SlowDisk::new(pid, &dir);
    workload.go();
    let results = workload.results();
    tool.interrupt();
    let report = serde_json::from_str(&tool.finish().stdout).expect("a JSON object");
    drop(slow);
    workload.finish();

    let thread = &results[0];
    let tid = number(thread, "tid");
    let found = waited(&report, tid, "page-fault") + waited(&report, tid, "preempted");
    assert_waited(found, thread, 0);
}

#[test]
fn a_thread_that_sleeps_throughout_is_there_in_full() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = trace("asleep", &[], &[]);
    let window = report["duration_ns"].as_u64().expect("a duration");
    assert_eq!(results.len(), 4);
    for thread in &results {
        let found: u64 = stacks(&report, number(thread, "tid")).map(total).sum();
        assert_close(
            found,
            window,
            0.001,
            thread["kind"].as_str().expect("a kind"),
        );
    }
    let reasons: Vec<&str> = results
        .iter()
        .filter_map(|thread| stacks(&report, number(thread, "tid")).next()?["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["futex", "wait", "poll", "pipe"]);
}

/// Four threads that share a CPU.
fn spinners() -> (Value, Vec<Value>) {
    let args = ["--threads", "4", "--cpu", "0", "--seconds", "2"];
    trace("spinner", &args, &[])
}

#[test]
fn phases_add_up_to_threads_times_wall() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = spinners();
    let accounting = &report["accounting"];
    let lifetime = number(accounting, "lifetime_ns");
    let explained = ["oncpu_ns", "runqueue_ns", "blocked_ns"]
        .iter()
        .map(|key| number(accounting, key))
        .sum();
    assert_close(explained, lifetime, 0.005, "on CPU + run queue + blocked");
    // The main thread waits for the spinners.
    let threads = results.len() as u64 + 1;
    assert_eq!(number(accounting, "threads"), threads);
    assert_close(
        lifetime,
        threads * number(&report, "duration_ns"),
        0.005,
        "threads x wall",
    );
}

/// Each of a workload's threads is off its CPU as often as in the log of the kernel's events, for a time inside its bracket.
fn assert_times_are_the_kernels(workload: Workload) {
    let (report, results, logs) = sandwiched("offcputime", workload, &["-m", "0"]);
    let edges = number(&report, "start_ns")..number(&report, "end_ns");
    for thread in &results {
        let tid = number(thread, "tid");
        let truth = offcpu::intervals(&logs, u32::try_from(tid).expect("a thread ID"), &edges);
        let truth = truth.expect("logs that agree");
        let count = stacks(&report, tid)
            .map(|stack| number(stack, "count"))
            .sum();
        let sum_ns = stacks(&report, tid).map(total).sum();
        eprintln!("thread {tid}: {count} times, {sum_ns} ns; {truth:?}");
        assert!(
            truth.holds(count, sum_ns),
            "thread {tid}: {count} times, {sum_ns} ns; {truth:?}"
        );
    }
    assert_eq!(report["losses"]["unreported"], 0);
}

#[test]
fn spinners_are_off_their_cpu_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    assert_times_are_the_kernels(Workload::spinners(4, 1));
}

#[test]
fn waiters_are_off_their_cpus_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let args = ["--waits", "23", "--millis", "20"];
    assert_times_are_the_kernels(Workload::start("waiter", &args));
}

#[test]
fn the_waker_of_a_pipe_read_is_its_writer() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = trace(
        "waiter",
        &["--waits", "23", "--kinds", "pipe"],
        &["--waker"],
    );
    let tid = number(&results[0], "tid");
    let woken: Vec<&Value> = stacks(&report, tid)
        .filter(|stack| stack["reason"] == "pipe" && stack["waker"].is_object())
        .collect();
    let counts = woken.iter().map(|stack| number(stack, "count"));
    assert_eq!(
        counts.sum::<u64>(),
        number(&results[0], "slept"),
        "every wait has a waker"
    );
    for stack in woken {
        assert_eq!(stack["waker"]["comm"], "h-pipe");
        let frames = stack["waker"]["kernel"].as_array().expect("frames");
        assert!(frames.iter().any(|frame| {
            frame["name"]
                .as_str()
                .is_some_and(|name| name.contains("pipe_write"))
        }));
    }
}
