//! offcputime against a log of the kernel's own events, and what programs say they waited for.

use serde_json::Value;

use crate::kernel::alone;
use crate::off_cpu::{Times, assert_all_off, sees_hidden, stacks, total};
use crate::slow_disk::SlowDisk;
use crate::traced::{Sandwich, sandwiched, traced};
use crate::workload::{Workload, number};

fn trace(workload: &str, args: &[&str], options: &[&str]) -> (Value, Vec<Value>) {
    let workload = Workload::start(workload, args);
    let tgid = workload.pid();
    traced("offcputime", workload, tgid, options)
}

/// The wait for the word to begin, in which the workload's threads are from the start to that of their work.
fn is_gate(stack: &Value) -> bool {
    let frames = stack["kernel"].as_array().expect("frames");
    frames.iter().any(|frame| {
        frame["name"]
            .as_str()
            .is_some_and(|name| name.contains("sigtimedwait"))
    })
}

/// Each thread of a waiter did one thing from its account's beginning to its end: it slept there as often as in the log, for a time
/// inside its bracket, for the reason that it says.
pub(crate) fn assert_reasons_are_the_programs(found: &Sandwich, sees_hidden: bool) {
    for thread in &found.results {
        let kind = thread["kind"].as_str().expect("a kind");
        let reason = match kind {
            "mutex" | "pmutex" => "futex",
            "epoll" => "poll",
            "pagefault" => "page-fault",
            same => same,
        };
        let times = Times::of(found, number(thread, "tid"), sees_hidden);
        let worked = number(thread, "start_ns")..number(thread, "end_ns");
        let truth = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&worked));
        assert!(truth.count > 0, "{thread}");
        times.assert_inside(&truth, |stack| stack["reason"] == reason && !is_gate(stack));
        let truth = times.bracket(|absence| absence.was_runnable);
        times.assert_inside(&truth, |stack| stack["reason"] == "preempted");
    }
}

#[test]
fn each_kind_of_wait_has_its_reason_and_its_time() {
    let Some(_machine) = alone() else {
        return;
    };
    let workload = Workload::start("waiter", &["--waits", "23", "--millis", "20"]);
    let found = sandwiched("offcputime", workload, &["-m", "0"]);
    assert!(found.results.len() >= 8);
    assert_reasons_are_the_programs(&found, sees_hidden());
}

#[test]
fn page_faults_from_disk_are_told_from_reads() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = std::env::current_dir().expect("a directory");
    let place = dir.to_str().expect("a plain path");
    let args = [
        "--kinds",
        "pagefault",
        "--disk-waits",
        "101",
        "--dir",
        place,
    ];
    let workload = Workload::start("waiter", &args);
    let slow = SlowDisk::new(workload.pid(), &dir);
    let found = sandwiched("offcputime", workload, &["-m", "0"]);
    drop(slow);
    assert_reasons_are_the_programs(&found, sees_hidden());
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
        assert_eq!(found, window, "{thread}");
    }
    let reasons: Vec<&str> = results
        .iter()
        .filter_map(|thread| stacks(&report, number(thread, "tid")).next()?["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["futex", "wait", "poll", "pipe"]);
}

#[test]
fn phases_add_up_to_threads_times_wall() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = trace(
        "spinner",
        &["--threads", "4", "--cpu", "0", "--seconds", "2"],
        &[],
    );
    let accounting = &report["accounting"];
    let lifetime = number(accounting, "lifetime_ns");
    let explained: u64 = ["oncpu_ns", "runqueue_ns", "blocked_ns"]
        .iter()
        .map(|key| number(accounting, key))
        .sum();
    let unseen = number(&report, "losses.out_of_order_ns");
    assert_eq!(explained + unseen, lifetime, "{accounting}");
    // The main thread waits for the spinners.
    let threads = results.len() as u64 + 1;
    assert_eq!(number(accounting, "threads"), threads);
    assert_eq!(lifetime, threads * number(&report, "duration_ns"));
}

#[test]
fn spinners_are_off_their_cpu_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    assert_all_off(Workload::spinners(4, 1));
}

#[test]
fn waiters_are_off_their_cpus_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let args = ["--waits", "23", "--millis", "20"];
    assert_all_off(Workload::start("waiter", &args));
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
