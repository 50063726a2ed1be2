//! runqlat against a log of the kernel's own events and against known numbers of wakeups.

use std::collections::BTreeSet;

use oracle::behind::culprits;
use serde_json::Value;

use crate::kernel::alone;
use crate::run_queue::{assert_only_unseen, assert_waits, group};
use crate::traced::{assert_no_gaps, observed, sandwiched, traced};
use crate::workload::{Workload, number};

/// By thread.
fn trace(workload: &str, args: &[&str], options: &[&str]) -> (Value, Vec<Value>) {
    let workload = Workload::start(workload, args);
    let tgid = workload.pid();
    let (report, results) = traced("runqlat", workload, tgid, &[&["-L"], options].concat());
    for (loss, count) in report["losses"].as_object().expect("losses") {
        // A sandbox's kernel hides some switches; whoever compares sums has to allow for those waits.
        assert!(loss == "unseen" || *count == 0, "{loss}: {count}");
    }
    (report, results)
}

/// Traces all of a workload's threads; each has as many waits as the log of the kernel's events, in a sum inside its bracket.
fn assert_waits_are_the_kernels(workload: Workload) {
    let found = sandwiched("runqlat", workload, &["-L"]);
    let (report, logs) = (&found.report, &found.logs);
    let threads = found.results.iter().map(|thread| number(thread, "tid"));
    let hidden = threads.map(|tid| assert_waits(report, logs, tid, |_| true));
    assert_only_unseen(report, hidden.sum());
}

#[test]
fn spinners_on_one_cpu_wait_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    assert_waits_are_the_kernels(Workload::spinners(4, 1));
}

#[test]
fn a_storm_of_wakeups_waits_as_long_as_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let args = ["--storm", "--cpu", "0", "--seconds", "1"];
    assert_waits_are_the_kernels(Workload::start("waker", &args));
}

#[test]
fn every_wakeup_of_a_prime_number_is_counted() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results) = trace("waker", &["--count", "997", "--cpu", "0"], &["--wakeup"]);
    for consumer in &results {
        let group = group(&report, number(consumer, "tid"));
        let (count, unseen) = (number(group, "count"), number(&report["losses"], "unseen"));
        assert!(
            count <= 997 && count + unseen >= 997,
            "{count} waits, {unseen} unseen"
        );
    }
}

#[test]
fn the_spinners_are_named_as_what_each_other_waited_behind() {
    let Some(_machine) = alone() else {
        return;
    };
    let found = sandwiched("runqlat", Workload::spinners(2, 2), &["-L"]);
    let list = |name: &str| found.report[name].as_array().expect("a list").iter();
    let id = |entry: &Value| u32::try_from(number(entry, "tid")).expect("a thread ID");
    let waiters: Vec<u32> = list("groups").map(id).collect();
    let truth = culprits(&found.logs, &waiters).expect("logs that agree");
    let named: BTreeSet<u32> = list("behind").map(id).collect();
    assert!(named.iter().eq(truth.keys()), "{named:?}, {truth:?}");
    for culprit in list("behind") {
        let truth = &truth[&id(culprit)];
        let (waits, caused_ns) = (number(culprit, "waits"), number(culprit, "caused_ns"));
        eprintln!("{waits} waits, {caused_ns} ns behind {culprit}; {truth:?}");
        assert!(truth.holds(waits, caused_ns), "{culprit}; {truth:?}");
    }
    for spinner in &found.results {
        assert!(named.contains(&id(spinner)), "{spinner}");
    }
}

#[test]
fn intervals_add_up_and_do_not_drift() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::start("waker", &["--count", "997", "--cpu", "0"]);
    let pid = workload.pid().to_string();
    let (output, results) = observed(
        "runqlat",
        &["-L", "-j", "--wakeup", "-p", &pid, "100ms"],
        &mut workload,
    );
    let reports = output.reports();
    let tid = number(&results[0], "tid");
    let counts = reports
        .iter()
        .map(|report| group(report, tid)["count"].as_u64().unwrap_or(0));
    let count: u64 = counts.sum();
    let unseen = reports
        .last()
        .map_or(0, |report| number(&report["losses"], "unseen"));
    assert!(
        count <= 997 && count + unseen >= 997,
        "{count} waits, {unseen} unseen"
    );
    assert_no_gaps(&reports);
    workload.finish();
}

#[test]
fn slow_waits_of_a_sleeper_are_all_printed_and_never_behind_an_idle_task() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::start("waiter", &["--waits", "23", "--kinds", "sleep"]);
    let pid = workload.pid().to_string();
    let args = [
        "-L",
        "-j",
        "--wakeup",
        "--slower",
        "0.000000001",
        "-p",
        &pid,
    ];
    let (output, results) = observed("runqlat", &args, &mut workload);
    workload.finish();
    let lines = output.reports();
    let tid = number(&results[0], "tid");
    let (report, slow) = lines.split_last().expect("a report at the end");
    let slow: Vec<&Value> = slow
        .iter()
        .map(|line| &line["slow_wait"])
        .filter(|wait| wait["tid"] == tid)
        .collect();
    assert_eq!(slow.len() as u64, number(group(report, tid), "count"));
    let unseen = number(report, "losses.unseen");
    assert!(slow.len() as u64 + unseen >= 23, "{}", slow.len());
    for wait in slow {
        let behind = &wait["behind"];
        // Of all tasks only the idle ones, one per CPU, have the ID 0.
        assert_eq!(behind["comm"] == "idle", behind["tid"] == 0, "{wait}");
    }
}
