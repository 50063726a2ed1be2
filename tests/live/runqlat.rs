//! runqlat against a log of the kernel's own events and against known numbers of wakeups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use oracle::behind::{Caused, caused};

use crate::cgroup::Cgroup;
use crate::kernel::{id_of, schedstat, tasks, until};
use crate::prelude::*;
use crate::run_queue::{assert_only_unseen, assert_waits, group};
use crate::traced::assert_no_gaps;

/// Traces all of a workload's threads; each has as many waits as the log of the kernel's events, in a sum inside its bracket.
/// So has the first, which waits for the others' end: its switches may be hidden, too.
fn assert_waits_are_the_kernels(start: fn() -> Workload) {
    let _machine = Machine::alone();
    let workload = start();
    let first = u64::from(workload.pid());
    let found = sandwiched("runqlat", "-L", workload);
    let (report, logs) = (&found.report, &found.logs);
    let threads = found.results.iter().map(|thread| number(thread, "tid"));
    let threads = threads.chain([first]);
    let hidden = threads.map(|tid| assert_waits(report, logs, tid, |_| true));
    assert_only_unseen(report, hidden.sum());
}

#[test]
fn spinners_on_one_cpu_wait_as_long_as_the_kernel_says() {
    assert_waits_are_the_kernels(|| Workload::spinners(4, 1));
}

#[test]
fn a_storm_of_wakeups_waits_as_long_as_the_kernel_says() {
    assert_waits_are_the_kernels(|| Workload::start("waker", "--storm --cpu 0 --seconds 1"));
}

#[test]
fn every_wakeup_of_a_prime_number_is_counted() {
    let _machine = Machine::alone();
    let workload = Workload::start("waker", "--count 997 --cpu 0");
    let (report, results) = traced("runqlat", "-L --wakeup", workload);
    // A sandbox's kernel hides some switches; whoever compares counts has to allow for those waits.
    let unseen = number(&report, "losses.unseen");
    assert_only_unseen(&report, unseen);
    for consumer in &results {
        let count = number(group(&report, number(consumer, "tid")), "count");
        assert_all("waits", count, unseen, 997, &report);
    }
}

/// Computes for 20 ms.
const BRIEF: &str = r#"
int main(void)
{
	busy_ns(CLOCK_THREAD_CPUTIME_ID, 20000000);
	return 0;
}
"#;

/// A build's compilers are gone when the report names them.
#[test]
fn programs_that_have_ended_are_named_as_what_others_waited_behind() {
    let _machine = Machine::alone();
    let brief = Program::c("brief", BRIEF, "");
    let workload = Workload::spinning(2);
    let tool = Tool::attached("runqlat", format!("-j -p {}", workload.pid()));
    for _ in 0..20 {
        // The spinners are there, too.
        let mut pinned = Command::new("taskset");
        let pinned = pinned.args(["-c", "0", brief.text()]);
        let ended = pinned.status().expect("it runs");
        assert!(ended.success(), "{ended}");
    }
    let report = tool.report();
    let behind = list(&report, "behind").iter();
    let (brief, others): (Vec<_>, Vec<_>) = behind.partition(|one| one["comm"] == "brief");
    assert!(brief.len() > 1, "{report:#}");
    assert!(
        others.iter().all(|one| one["comm"] != "[exited]"),
        "{others:#?}"
    );
}

#[test]
fn the_spinners_are_named_as_what_each_other_waited_behind() {
    let _machine = Machine::alone();
    let found = sandwiched("runqlat", "-L", Workload::spinners(2, 2));
    let tid = |entry: &Value| id(entry, "tid");
    let waiters: Vec<u32> = list(&found.report, "groups").iter().map(tid).collect();
    let behind = list(&found.report, "behind");
    let truth = caused(&found.logs, &waiters).expect("logs that agree");
    for culprit in behind {
        let found = (number(culprit, "waits"), number(culprit, "caused_ns"));
        let truth = truth.get(&tid(culprit)).copied().unwrap_or_default();
        eprintln!("waits behind: {culprit}, {truth:?}");
        assert!(truth.holds(found.0, found.1), "{culprit}, {truth:?}");
    }
    let named: BTreeSet<u32> = behind.iter().map(tid).collect();
    let is_sure = |(_, caused): &(&u32, &Caused)| caused.sure.count > 0;
    let missing = truth.iter().filter(is_sure);
    let missing: Vec<_> = missing.filter(|(tid, _)| !named.contains(tid)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // On a busy machine others run between them, and only so many turns are looked back on.
    assert!(!named.is_empty(), "{}", found.report);
}

#[test]
fn intervals_add_up_and_do_not_drift() {
    let _machine = Machine::alone();
    let mut workload = Workload::start("waker", "--count 997 --cpu 0");
    let (output, results) = observed("runqlat", "100ms -L -j --wakeup", &mut workload);
    workload.finish();
    let reports = output.reports();
    let tid = number(&results[0], "tid");
    // An interval without its waits has no such group.
    let counts = reports
        .iter()
        .filter_map(|report| group(report, tid)["count"].as_u64());
    let unseen = number(&reports[reports.len() - 1], "losses.unseen");
    assert_all("waits", counts.sum(), unseen, 997, &output.stdout);
    assert_no_gaps(&reports);
}

#[test]
fn slow_waits_of_a_sleeper_are_all_printed_and_never_behind_an_idle_task() {
    let _machine = Machine::alone();
    let mut workload = Workload::start("waiter", "--waits 23 --kinds sleep");
    let args = "-L -j --wakeup --slower 0.000000001";
    let (output, results) = observed("runqlat", args, &mut workload);
    workload.finish();
    let lines = output.reports();
    let (report, slow) = lines.split_last().expect("a report at the end");
    let tid = number(&results[0], "tid");
    let slow = slow.iter().map(|line| &line["slow_wait"]);
    let slow: Vec<&Value> = slow.filter(|wait| wait["tid"] == tid).collect();
    let count = slow.len() as u64;
    assert_eq!(count, number(group(report, tid), "count"));
    let slept = number(&results[0], "slept");
    let seen = count + number(report, "losses.unseen");
    assert!(slept > 0 && seen >= slept, "{count} of {slept}");
    for wait in slow {
        let behind = &wait["behind"];
        // Of all tasks only the idle ones, one per CPU, have the ID 0.
        assert_eq!(behind["comm"] == "idle", behind["tid"] == 0, "{wait}");
    }
}

/// Neighbours that compute are no reason for their waits.
#[test]
fn a_quota_that_is_used_up_is_named_in_place_of_neighbours() {
    let _machine = Machine::alone();
    for threads in [1, 4] {
        assert_quota_is_named(threads);
    }
}

/// Threads that are ready in all of a window wait, though nothing is seen of their wait.
#[test]
fn whoever_never_ran_for_want_of_quota_is_told_from_who_slept() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = spinners_until(1, &dir.path().join("word"));
    let mut sleeper = Workload::start("waiter", "--waits 23 --kinds sleep");
    let pid = workload.pid();
    workload.go();
    // Without a CPU on its way to sleep the first thread would be ready throughout, too.
    let (call, futex) = (
        format!("/proc/{pid}/syscall"),
        format!("{} ", libc::SYS_futex),
    );
    until("the first thread waits for the other", || {
        fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&futex))
    });
    let cgroup = Cgroup::without_cpu(pid);
    let ran = || {
        let of_thread = |task: &PathBuf| schedstat(task)[0];
        tasks(pid).iter().map(of_thread).sum::<u64>()
    };
    // From the end of a turn on there is a second without one, in most of which it can be looked at. A turn may be of some ticks.
    let is_over = || {
        let before = ran();
        thread::sleep(Duration::from_millis(10));
        before == ran()
    };
    let without_a_turn = |options: &str| {
        let output = (0..20).find_map(|_| {
            let first = ran();
            until("a turn", || ran() != first);
            until("its end", is_over);
            let before = ran();
            let output = Tool::run("runqlat", format!("{options} -p {pid} 0.1 1"));
            (before == ran()).then_some(output)
        });
        output.expect("a run between two turns")
    };
    let report = without_a_turn("-j").report();
    let text = without_a_turn("").stdout;
    let ready = only(&report, "never_ran");
    let ids = tasks(pid).into_iter().filter_map(|task| id_of(&task));
    let ids: Vec<u64> = ids.map(u64::from).collect();
    assert!(ids.contains(&number(ready, "tid")), "{report} {ids:?}");
    assert_eq!(ready["without_quota"], true, "{report}");
    let head = "no waits for a CPU ended in 100 ms;\n  1 thread ready throughout never ran, for want of CPU quota\n";
    assert!(text.starts_with(head), "{text}");
    let asleep = format!("-j -p {} 0.1 1", sleeper.pid());
    let asleep = Tool::run("runqlat", asleep).report();
    assert!(list(&asleep, "never_ran").is_empty(), "{asleep}");
    drop(cgroup);
    fs::write(dir.path().join("word"), "").expect("a file");
    workload.results();
    workload.finish();
    sleeper.work();
    sleeper.finish();
}

/// Waits for want of quota, or behind somebody.
fn assert_each_wait_is_for_one(report: &Value) {
    let waited = number(only(report, "groups"), "sum_ns");
    let without = number(report, "without_quota.sum_ns");
    let behind = list(report, "behind").iter();
    let behind: u64 = behind.map(|one| number(one, "caused_ns")).sum();
    assert_within(
        "without quota",
        without,
        waited / 2..=waited - behind,
        report,
    );
}

/// They spin for two seconds, and until that file is there.
fn spinners_until(threads: u32, word: &Path) -> Workload {
    let options = format!("--threads {threads} --cpu 0 --seconds 2 --word");
    Workload::start("spinner", format!("{options} {}", word.display()))
}

/// It is the group's, and was used up in so many periods at most.
fn assert_used_up(quota: &Value, cgroup: &Cgroup, most: u64) {
    assert_eq!(quota["cgroup"], cgroup.path());
    assert_within("periods", number(quota, "used_up"), 10..=most, quota);
}

fn assert_quota_is_named(threads: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let word = dir.path().join("word");
    let mut workload = spinners_until(threads, &word);
    let pid = workload.pid();
    let cgroup = Cgroup::short_of_cpu(pid);
    let before = cgroup.throttled_periods();
    let text = Tool::attached("runqlat", format!("-p {pid}"));
    let json = Tool::attached("runqlat", format!("-j -p {pid}"));
    let other = Tool::attached("runqlat", format!("-j -p {}", std::process::id()));
    let by_name = Tool::attached("runqlat", "--comm spinner*");
    let whole = Tool::attached("runqlat", "-j");
    let waits = Tool::attached("offcputime", format!("-j -p {pid}"));
    let cpu = Tool::attached("profile", format!("-j -p {pid}"));
    workload.go();
    until("20 periods", || cgroup.throttled_periods() >= before + 20);
    fs::write(&word, "").expect("a file");
    workload.results();
    let (text, report) = (text.end().stdout, json.end().report());
    let [of_others, whole, waits, cpu] = [other, whole, waits, cpu].map(|tool| tool.end().report());
    let by_name = by_name.end().stdout;
    let most = cgroup.throttled_periods() - before;
    let path = cgroup.path();
    let head = "threads waited for want of CPU quota of";
    let head = format!("{head} {path}:\n  5.00 ms per 50.0 ms, used up in ");
    workload.finish();
    for text in [&text, &by_name] {
        assert!(text.starts_with(&head), "{text}");
        assert!(!text.contains("WAITED BEHIND"), "{text}");
    }
    let profile = crate::built("profile");
    let is_said = |target: String| {
        let next = format!(
            "next: {} {target} 10   # what uses up the quota\n",
            profile.display()
        );
        text.contains(&next)
    };
    // A group of v2 is a target.
    assert!(
        is_said(format!("-p {pid}")) || is_said(format!("--cgroup {path}")),
        "{text}"
    );
    for tool in [&waits, &cpu, &report] {
        assert_used_up(only(tool, "quotas"), &cgroup, most);
    }
    let waited = number(only(&report, "groups"), "sum_ns");
    let throttled = number(only(&report, "quotas"), "throttled_ns");
    // All threads wait while their CPU stands still.
    let threads = u64::from(threads);
    assert_within(
        "throttled",
        throttled,
        waited / 2 / threads..=waited / threads + 100_000_000,
        &report,
    );
    assert!(list(&of_others, "quotas").is_empty(), "{of_others}");
    assert_eq!(number(&of_others, "without_quota.waits"), 0, "{of_others}");
    assert_each_wait_is_for_one(&report);
    let mut quotas = list(&whole, "quotas").iter();
    let own = quotas.find(|quota| quota["cgroup"] == path);
    assert_used_up(own.unwrap_or_else(|| panic!("{whole}")), &cgroup, most);
    assert!(number(&whole, "without_quota.waits") >= 10, "{whole}");
}
