//! offcputime against a log of the kernel's own events, and what programs say they waited for.

use std::collections::{BTreeSet, HashSet};
use std::fs;

use crate::beside::lockstat_user::locks;
use crate::cgroup::Cgroup;
use crate::kernel::{states, until};
use crate::off_cpu::{Times, assert_all_off, phases_ns, sees_hidden, stacks};
use crate::prelude::*;

/// The wait for the word to begin, in which the workload's threads are from the start to that of their work.
fn is_gate(stack: &Value) -> bool {
    has_kernel_frame(stack, "sigtimedwait")
}

fn has_kernel_frame(stack: &Value, part: &str) -> bool {
    let mut frames = list(stack, "kernel").iter();
    frames.any(|frame| {
        frame["name"]
            .as_str()
            .is_some_and(|name| name.contains(part))
    })
}

/// Each thread of a waiter did one thing from its account's beginning to its end: it slept there as often as in the log, for a time
/// inside its bracket, for the reason that it says.
pub(crate) fn assert_reasons_are_the_programs(found: &Sandwich, sees_hidden: bool) {
    for thread in &found.results {
        let kind = text(thread, "kind");
        let reason = match kind {
            "mutex" | "pmutex" => "futex",
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
    let _machine = Machine::alone();
    let workload = Workload::start("waiter", "--waits 23 --millis 20");
    let found = sandwiched("offcputime", "-m 0", workload);
    assert!(found.results.len() == 13);
    assert_reasons_are_the_programs(&found, sees_hidden());
}

#[test]
fn page_faults_from_disk_are_told_from_reads() {
    let _machine = Machine::alone();
    let dir = std::env::current_dir().expect("a directory");
    let args = "--kinds pagefault --disk-waits 101 --dir";
    let workload = Workload::start("waiter", format!("{args} {}", dir.display()));
    let slow = Cgroup::on_a_slow_disk(workload.pid(), &dir);
    let found = sandwiched("offcputime", "-m 0", workload);
    drop(slow);
    assert_reasons_are_the_programs(&found, sees_hidden());
}

#[test]
fn a_thread_that_sleeps_throughout_is_there_in_full() {
    let _machine = Machine::alone();
    let workload = Workload::start("asleep", "");
    let (report, results) = traced("offcputime", "", workload);
    let window = number(&report, "duration_ns");
    assert_eq!(results.len(), 4);
    let of = |thread: &Value| stacks(&report, number(thread, "tid"));
    for thread in &results {
        let found: u64 = of(thread).map(weight).sum();
        assert_eq!(found, window, "{thread}");
    }
    let reasons = results
        .iter()
        .filter_map(|thread| of(thread).next()?["reason"].as_str());
    let reasons: Vec<&str> = reasons.collect();
    assert_eq!(reasons, ["futex", "wait", "epoll", "pipe"]);
}

#[test]
fn phases_add_up_to_threads_times_wall() {
    let _machine = Machine::alone();
    let (report, results) = traced("offcputime", "", Workload::spinners(4, 2));
    let accounting = &report["accounting"];
    let lifetime = number(accounting, "lifetime_ns");
    let unseen = number(&report, "losses.out_of_order_ns");
    assert_eq!(phases_ns(&report) + unseen, lifetime, "{accounting}");
    // The main thread waits for the spinners.
    let threads = results.len() as u64 + 1;
    assert_eq!(number(accounting, "threads"), threads);
    assert_eq!(lifetime, threads * number(&report, "duration_ns"));
}

#[test]
fn spinners_are_off_their_cpu_as_long_as_the_kernel_says() {
    assert_all_off(|| Workload::spinners(4, 1));
}

#[test]
fn waiters_are_off_their_cpus_as_long_as_the_kernel_says() {
    assert_all_off(|| Workload::start("waiter", "--waits 23 --millis 20"));
}

#[test]
fn the_waker_of_a_pipe_read_is_its_writer() {
    let _machine = Machine::alone();
    let workload = Workload::start("waiter", "--waits 23 --kinds pipe");
    let (report, results) = traced("offcputime", "--waker", workload);
    let slept = number(&results[0], "slept");
    let is_woken = |stack: &&Value| stack["reason"] == "pipe" && stack["waker"].is_object();
    let woken = stacks(&report, number(&results[0], "tid")).filter(is_woken);
    let woken: Vec<&Value> = woken.collect();
    let count = sum(woken.iter().copied(), "count");
    assert_eq!(count, slept, "every wait has a waker");
    for stack in woken {
        assert_eq!(stack["waker"]["comm"], "h-pipe");
        assert!(has_kernel_frame(&stack["waker"], "pipe_write"), "{stack}");
    }
}

/// Processes of one name and one stack, each of which wakes the shell once.
#[test]
fn each_child_that_ends_a_wait_is_one_of_its_own() {
    let _machine = Machine::alone();
    let ids = tempfile::NamedTempFile::new().expect("a file");
    let children = "for i in 1 2 3 4 5 6 7; do sleep 0.02 & echo $!; wait $!; done";
    let script = format!("exec >{}; {children}", ids.path().display());
    let output = Tool::run("offcputime", ["--waker", "-j", "--", "sh", "-c", &script]);
    let report = output.ok().report();
    let woken = list(&report, "stacks").iter();
    let woken = woken.filter(|stack| stack["comm"] == "sh" && stack["reason"] == "wait");
    let enders: BTreeSet<u64> = woken.map(|stack| number(stack, "waker.pid")).collect();
    let children = fs::read_to_string(ids.path()).expect("IDs");
    let children = children.lines().map(|id| id.parse().expect("an ID"));
    assert_eq!(enders, children.collect::<BTreeSet<u64>>());
}

/// The kernel has one inode for all of these.
#[test]
fn a_file_without_a_type_is_known_by_its_name() {
    let _machine = Machine::alone();
    let workload = Workload::start("waiter", "--waits 23 --kinds eventfd,inotify");
    let (report, results) = traced("offcputime", "", workload);
    assert_eq!(results.len(), 2);
    for thread in &results {
        let of_kind = |stack: &&Value| stack["reason"] == thread["kind"];
        let waits = stacks(&report, number(thread, "tid")).filter(of_kind);
        assert_eq!(sum(waits, "count"), number(thread, "slept"), "{thread}");
    }
}

const HOMES: &str = include_str!("../workloads/locks/homes.c");

/// Its waits for events are the log's, and nine tenths of them idle, however long a busy machine makes some. The kernel may hide a
/// switch.
#[test]
fn an_event_loop_is_idle_at_home_and_not_where_it_waits_for_an_answer() {
    let _machine = Machine::alone();
    let found = sandwiched("offcputime", "-m 0", locks(HOMES, "").start(""));
    let tid = number(&found.results[0], "tid");
    let times = Times::of(&found, tid, sees_hidden());
    let for_events = |turn: &Value| number(turn, "start_ns")..number(turn, "end_ns");
    let spans: Vec<_> = found.results.iter().map(for_events).collect();
    let truth = times.bracket(|absence| {
        let mut spans = spans.iter();
        !absence.was_runnable && spans.any(|span| absence.begins_in(span))
    });
    times.assert_inside(&truth, |stack| stack["reason"] == "epoll");
    let report = &found.report;
    let of_loop = |reason: &str| {
        let stacks = list(report, "stacks").iter();
        let is_its = |stack: &&Value| stack["comm"] == "loop" && stack["reason"] == reason;
        let stacks: Vec<&Value> = stacks.filter(is_its).collect();
        let all = sum(stacks.iter().copied(), "count");
        assert!(all >= 45, "{report:#}");
        let idle = stacks.into_iter().filter(|stack| stack["idle"] == true);
        (sum(idle, "count"), all)
    };
    let (idle, all) = of_loop("epoll");
    assert!(idle * 10 >= all * 9, "{idle} of {all}: {report:#}");
    assert_eq!(of_loop("poll").0, 0, "{report:#}");
}

const SERVES: &str = include_str!("../workloads/locks/serves.c");

/// The kernel may hide a switch: 45 of 50 requests are seen.
#[test]
fn a_server_is_idle_where_its_client_has_sent_nothing_and_not_in_its_database() {
    let _machine = Machine::alone();
    for kind in ["tcp", "unix", "unix-names"] {
        let (report, _) = traced("offcputime", "", locks(SERVES, "").start(kind));
        // Waits for a byte are all idle, or none is.
        let assert_idle = |comm: &str, is_in_handler: bool, is_idle: bool| {
            let stacks = list(&report, "stacks").iter();
            let is_its = |stack: &&Value| {
                let names = list(stack, "user").iter().map(|frame| &frame["name"]);
                let has = |name: &str| names.clone().any(|frame| frame == name);
                let is_wait = stack["reason"] == "socket" && has("get_byte");
                is_wait && stack["comm"] == comm && has("handle") == is_in_handler
            };
            let stacks: Vec<&Value> = stacks.filter(is_its).collect();
            let count = sum(stacks.iter().copied(), "count");
            let is_as_told = |stack: &&Value| (stack["idle"] == true) == is_idle;
            assert!(
                count >= 45 && stacks.iter().all(is_as_told),
                "{kind} {comm}: {stacks:#?}"
            );
        };
        assert_idle("server", false, true);
        assert_idle("server", true, false);
        assert_idle("client", false, false);
        assert_idle("database", false, false);
    }
}

/// Its thread has an outer home, as one of MariaDB's that serves PHP. Its client's, which waits nowhere else, is not idle.
#[test]
fn a_pools_thread_is_idle_where_it_polls_its_client_and_its_client_is_not() {
    let _machine = Machine::alone();
    let (report, _) = traced("offcputime", "", locks(SERVES, "").start("pool"));
    for (comm, reason, least, is_idle) in [
        ("server", "futex", 1, true),
        ("server", "poll", 45, true),
        ("server", "socket", 45, false),
        ("client", "poll", 45, false),
    ] {
        let stacks = list(&report, "stacks").iter();
        let is_its = |stack: &&Value| stack["comm"] == comm && stack["reason"] == reason;
        let stacks: Vec<&Value> = stacks.filter(is_its).collect();
        let count = sum(stacks.iter().copied(), "count");
        let is_as_told = |stack: &&Value| (stack["idle"] == true) == is_idle;
        assert!(
            count >= least && stacks.iter().all(is_as_told),
            "{comm}, {reason}: {stacks:#?}"
        );
    }
}

const BRISK: &str = include_str!("../workloads/locks/brisk.c");

/// The loop sleeps for microseconds in either case, by its own clock.
#[test]
fn an_event_loop_is_idle_however_often_it_is_asked_and_not_where_it_passes_a_token() {
    let _machine = Machine::alone();
    for (kind, is_idle) in [("socket", true), ("eventfd", false)] {
        let (report, _) = traced("offcputime", "-m 0", locks(BRISK, "").start(kind));
        assert_loops_waits(&report, kind, is_idle);
    }
    // Nobody can look any more.
    let mut workload = locks(BRISK, "").start("socket");
    let tool = Tool::attached("offcputime", format!("-j -m 0 -p {}", workload.pid()));
    workload.work();
    workload.finish();
    assert_loops_waits(&tool.report(), "of a process that is gone", true);
}

fn assert_loops_waits(report: &Value, kind: &str, is_idle: bool) {
    let stacks = list(report, "stacks").iter();
    let is_loops = |stack: &&Value| stack["comm"] == "loop" && stack["reason"] == "epoll";
    let waits: Vec<&Value> = stacks.filter(is_loops).collect();
    let count = sum(waits.iter().copied(), "count");
    assert!(count >= 1_000, "{kind}: {count}");
    let is_as_told = |stack: &&Value| (stack["idle"] == true) == is_idle;
    assert!(waits.iter().all(is_as_told), "{kind}: {waits:#?}");
}

/// None of them blocks. What began before tracing does not begin with a wait for something else.
#[test]
fn threads_that_are_ready_when_tracing_begins_wait_for_a_cpu_alone() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let word = dir.path().join("word");
    let options = "--threads 6 --cpu 0 --seconds 0.1 --word";
    let mut workload = Workload::start("spinner", format!("{options} {}", word.display()));
    let pid = workload.pid();
    workload.go();
    until("six are ready", || {
        states(pid).iter().filter(|state| **state == 'R').count() == 6
    });
    let report = Tool::run("offcputime", format!("-j -m 0 -p {pid} 0.3")).report();
    fs::write(&word, "").expect("a file");
    workload.results();
    workload.finish();
    let stacks = list(&report, "stacks").iter();
    let spinners: Vec<&Value> = stacks
        .filter(|stack| stack["tid"].as_u64() != Some(pid.into()))
        .collect();
    let others = spinners
        .iter()
        .filter(|stack| stack["reason"] != "preempted");
    assert_eq!(others.count(), 0, "{spinners:#?}");
    let tids: HashSet<u64> = spinners.iter().map(|stack| number(stack, "tid")).collect();
    assert_eq!(tids.len(), 6, "{report:#}");
}
