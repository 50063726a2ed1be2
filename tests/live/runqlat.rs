//! runqlat against a log of the kernel's own events and against known numbers of wakeups.

use oracle::run_queue;
use serde_json::Value;

use crate::cpu_times::stolen_ns;
use crate::kernel::alone;
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

fn group(report: &Value, tid: u64) -> &Value {
    let groups = report["groups"].as_array().expect("groups");
    groups
        .iter()
        .find(|group| group["tid"] == tid)
        .unwrap_or(&Value::Null)
}

/// The most that waits may have taken whose end was hidden.
fn hidden_ns(report: &Value, longest_ns: u64) -> u64 {
    number(&report["losses"], "unseen") * longest_ns
}

/// Traces all of a workload's threads; each has as many waits as the log of the kernel's events, in a sum inside its bracket.
fn assert_waits_are_the_kernels(workload: Workload) {
    let (report, results, logs) = sandwiched("runqlat", workload, &["-L"]);
    let mut hidden = 0;
    for thread in &results {
        let tid = number(thread, "tid");
        let truth = run_queue::waits(&logs, u32::try_from(tid).expect("a thread ID"));
        let truth = truth.expect("logs that agree");
        let group = group(&report, tid);
        let figure = |name: &str| group[name].as_u64().unwrap_or(0);
        let (count, sum_ns) = (figure("count"), figure("sum_ns"));
        eprintln!("thread {tid}: {count} waits, {sum_ns} ns; {truth:?}");
        assert!(
            truth.holds(count, sum_ns),
            "thread {tid}: {count} waits, {sum_ns} ns; {truth:?}"
        );
        hidden += truth.hidden;
    }
    for (loss, count) in report["losses"].as_object().expect("losses") {
        let truth = if loss == "unseen" { hidden } else { 0 };
        assert_eq!(*count, truth, "{loss}");
    }
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
    let (report, results) = trace(
        "spinner",
        &["--threads", "2", "--cpu", "0", "--seconds", "2"],
        &[],
    );
    let behind = report["behind"].as_array().expect("behind");
    let sum =
        |list: &[Value], key: &str| list.iter().map(|entry| number(entry, key)).sum::<u64>() as f64;
    let waited = sum(report["groups"].as_array().expect("groups"), "sum_ns");
    let caused = sum(behind, "caused_ns");
    // What a CPU takes to come out of idle is nobody's fault.
    assert!(
        caused <= waited && caused >= 0.99 * waited,
        "{caused} ns shared out of {waited} ns"
    );
    let longest_ns = report["groups"].as_array().expect("groups").iter();
    let longest_ns = longest_ns.map(|group| number(group, "max_ns")).max();
    let longest_ns = longest_ns.expect("a group");
    for thread in &results {
        // While one spinner runs the other one waits, nothing else.
        let tid = number(thread, "tid");
        let found = behind
            .iter()
            .filter(|task| number(task, "tid") == tid)
            .map(|task| number(task, "caused_ns"));
        let (found, truth) = (
            found.sum::<u64>() as f64,
            number(thread, "total.oncpu_ns") as f64,
        );
        // Time that a hypervisor took is waited, but on nobody's CPU time.
        let most = 1.05 * truth + stolen_ns() as f64;
        let least = 0.95 * truth - hidden_ns(&report, longest_ns) as f64;
        assert!(
            (least..=most).contains(&found),
            "thread {tid} ran {truth} ns, others waited {found} ns behind it; {}",
            report["losses"]
        );
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
