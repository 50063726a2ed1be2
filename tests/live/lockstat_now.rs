//! `lockstat --now` on programs that are stuck, and know how; and on busy ones, which are not.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::containers;
use crate::kernel::beside;
use crate::tool::Tool;
use crate::workload::{Workload, number};

pub(crate) const STUCK: &str = include_str!("../workloads/locks/stuck.c");

/// Runs `stuck`, until all its threads sleep for ever; gives what it knows of them, by thread.
pub(crate) fn stuck(dir: &Path, args: &[&str]) -> (Workload, HashMap<u64, Value>) {
    stuck_as(dir, &["-g"], args)
}

/// The same, compiled otherwise.
pub(crate) fn stuck_as(
    dir: &Path,
    flags: &[&str],
    args: &[&str],
) -> (Workload, HashMap<u64, Value>) {
    let program = compile(dir, "stuck", STUCK, flags);
    let mut command = Command::new(program);
    command.args(args);
    let (mut workload, _) = Workload::spawn("stuck", command);
    workload.go();
    let waits = workload.results();
    let by_tid = waits.into_iter().map(|wait| (number(&wait, "tid"), wait));
    (workload, by_tid.collect())
}

pub(crate) fn now(pid: u32) -> Value {
    let pid = pid.to_string();
    let output = Tool::start("lockstat", &["--now", "-j", "-p", &pid]).finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("a JSON object")
}

pub(crate) fn text(pid: u32) -> String {
    let pid = pid.to_string();
    Tool::start("lockstat", &["--now", "-p", &pid])
        .finish()
        .stdout
}

pub(crate) fn list(value: &Value) -> Vec<u64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|n| n.as_u64().expect("a number")).collect()
}

/// Every wait is as the program knows it, and there is no other.
fn assert_waits(report: &Value, known: &HashMap<u64, Value>) {
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), known.len(), "{report}");
    for wait in waits {
        let truth = known.get(&number(wait, "tid"));
        let truth = truth.unwrap_or_else(|| panic!("{wait} of no waiter"));
        assert_eq!(wait["class"], truth["class"], "{wait}");
        assert_eq!(wait["holder"]["tid"], truth["holder"], "{wait}");
        if wait["class"] != "end of thread" {
            assert_eq!(wait["address"], truth["address"], "{wait}");
        }
        let user = wait["user"].as_array().expect("a stack");
        let has = |name: &str| user.iter().any(|frame| frame == name);
        assert!(wait["user_complete"] == true && (has("take_second") || has("lock_and_join")));
    }
}

/// The program's own knowledge: from any member, holder by holder, back to it.
pub(crate) fn circle(known: &HashMap<u64, Value>, from: u64) -> Vec<u64> {
    let mut circle = vec![from];
    loop {
        let next = number(&known[&circle[circle.len() - 1]], "holder");
        if next == from {
            return circle;
        }
        circle.push(next);
    }
}

/// A ring of locks, one thread after the other, with some more behind it.
fn assert_ring(kinds: &str, innocents: usize, word: &str) {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["ring", kinds, &innocents.to_string()]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    let members = list(&deadlocks[0]["threads"]);
    assert_eq!(members.len(), kinds.len());
    assert_eq!(members, circle(&known, members[0]));
    let behind = list(&deadlocks[0]["behind"]);
    assert_eq!(behind.len(), innocents);
    assert!(
        behind
            .iter()
            .all(|tid| known.contains_key(tid) && !members.contains(tid))
    );
    assert_eq!(deadlocks[0]["timed"], kinds.contains('t'));
    assert_eq!(
        (&deadlocks[0]["kind"], &deadlocks[0]["certain"]),
        (&"circle".into(), &true.into())
    );

    let text = text(workload.pid());
    let line = format!(
        "\n{word}: {}",
        if members.len() == 1 {
            format!("1 thread of process {} waits for itself", workload.pid())
        } else {
            format!(
                "{} threads of process {} wait for each other",
                members.len(),
                workload.pid()
            )
        }
    );
    assert!(text.contains(&line), "{text}");
    // Each member's stack, from the kernel's leaf to the thread's root.
    assert_eq!(
        text.matches("\n    take_second\n").count(),
        members.len(),
        "{text}"
    );
    assert_eq!(
        text.matches("\n    clone3\n").count(),
        members.len(),
        "{text}"
    );
    workload.finish();
}

#[test]
fn a_thread_that_locks_its_own_mutex_again_is_a_circle_of_one() {
    assert_ring("m", 0, "DEADLOCK");
}

#[test]
fn two_threads_in_a_circle_and_innocent_ones_behind_them() {
    assert_ring("mm", 2, "DEADLOCK");
}

#[test]
fn three_threads_in_a_circle() {
    assert_ring("mmm", 3, "DEADLOCK");
}

#[test]
fn a_circle_through_a_rwlock_and_one_through_a_pi_mutex() {
    assert_ring("mw", 1, "DEADLOCK");
    assert_ring("mp", 1, "DEADLOCK");
}

#[test]
fn a_circle_of_writers_behind_writers() {
    assert_ring("WW", 1, "DEADLOCK");
}

#[test]
fn a_circle_that_a_time_out_will_end_is_called_that() {
    assert_ring("mt", 0, "DEADLOCK until a time-out");
}

#[test]
fn a_join_is_part_of_a_circle() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["join"]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let members = list(&report["deadlocks"][0]["threads"]);
    assert_eq!(members, circle(&known, members[0]));
    assert_eq!(members.len(), 2);
    workload.finish();
}

#[test]
fn a_lock_whose_holder_has_exited_is_abandoned() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["gone"]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    assert_eq!(deadlocks[0]["kind"], "abandoned");
    assert_eq!(list(&deadlocks[0]["threads"]).len(), 2);
    assert!(report["waits"][0]["holder"]["kind"] == "gone");
    workload.finish();
}

/// Its locks have their words in another order, and its stacks have no names.
#[test]
fn a_32_bit_programs_locks_name_their_holders_too() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for (args, kind, members) in [
        (&["ring", "mm", "1"][..], "circle", 2),
        (&["ring", "mw", "0"], "circle", 2),
        (&["ring", "mpt", "0"], "circle", 3),
        (&["gone"], "abandoned", 2),
    ] {
        let (workload, known) = stuck_as(dir.path(), &["-m32"], args);
        let report = now(workload.pid());
        assert_eq!(report["waiting"], known.len(), "{report}");
        for wait in report["waits"].as_array().expect("waits") {
            let truth = &known[&number(wait, "tid")];
            for field in ["class", "address"] {
                assert_eq!(wait[field], truth[field], "{wait}");
            }
            assert_eq!(wait["holder"]["tid"], truth["holder"], "{wait}");
        }
        let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
        assert_eq!(deadlocks.len(), 1, "{report}");
        let threads = list(&deadlocks[0]["threads"]);
        assert_eq!(
            (&deadlocks[0]["kind"], threads.len()),
            (&kind.into(), members)
        );
        if kind == "circle" {
            assert_eq!(threads, circle(&known, threads[0]));
        }
        assert!(text(workload.pid()).contains("\nDEADLOCK"));
        workload.finish();
    }
}

#[test]
fn owners_are_known_by_the_ids_of_their_own_pid_namespace() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "stuck", STUCK, &["-g"]);
    let mut command = Command::new(program);
    command.args(["ring", "mm", "1"]);
    let script = "mount -t proc none /proc && exec \"$@\"";
    let (mut workload, tgid) = containers::enter(script, &command);
    workload.go();
    let known = workload.results();
    // Inside they are called 2 and 3; here they are not.
    assert!(known.iter().all(|wait| number(wait, "tid") < 10));
    let report = now(tgid);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    assert_eq!(list(&deadlocks[0]["threads"]).len(), 2);
    assert_eq!(list(&deadlocks[0]["behind"]).len(), 1);
    workload.finish();
}

const RUST: &str = include_str!("../workloads/locks/crossed.rs");

fn rust(dir: &Path, spare: &str) -> Workload {
    let source = dir.join("rust.rs");
    std::fs::write(&source, RUST).expect("a file");
    let program = dir.join("rust");
    crate::c_program::run(
        Command::new("rustc")
            .args(["--edition", "2021", "-O", "-g", "-o"])
            .args([&program, &source]),
    );
    let mut command = Command::new(program);
    command.arg(spare);
    let (mut workload, _) = Workload::spawn("rust", command);
    workload.go();
    workload.results();
    workload
}

/// Until so many threads of a process sleep in futex calls, by the kernel's word.
fn await_futexes(pid: u32, threads: usize) {
    let in_futex = |path: std::path::PathBuf| {
        std::fs::read_to_string(path.join("syscall")).is_ok_and(|call| call.starts_with("202 "))
    };
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        if tasks.flatten().filter(|task| in_futex(task.path())).count() == threads {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_rust_program_of_which_every_thread_waits_is_dead_though_no_lock_names_a_holder() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "");
    await_futexes(workload.pid(), 3);
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    let locks: Vec<&Value> = waits
        .iter()
        .filter(|wait| wait["class"] == "Rust mutex")
        .collect();
    assert_eq!(locks.len(), 2, "{report}");
    for lock in locks {
        assert_eq!(lock["holder"]["kind"], "unrecorded");
    }
    assert_eq!(report["deadlocks"][0]["kind"], "process", "{report}");
    // Both, and the one that joins them.
    assert_eq!(list(&report["deadlocks"][0]["threads"]).len(), 3);
    let text = text(workload.pid());
    assert!(
        text.contains("wait for locks, and no thread is left that could release one"),
        "{text}"
    );
    assert!(text.contains("whose holder is not recorded"), "{text}");
}

#[test]
fn a_rust_program_with_a_thread_left_is_not_called_dead() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "spare");
    await_futexes(workload.pid(), 3);
    let report = now(workload.pid());
    assert_eq!(report["waiting"], 2, "{report}");
    assert_eq!(report["deadlocks"], serde_json::json!([]));
    let text = text(workload.pid());
    assert!(
        text.contains("1 thread behind Rust mutex") && text.contains("not recorded"),
        "{text}"
    );
}

const BUSY: &str = include_str!("../workloads/locks/busy.c");

#[test]
fn busy_programs_are_healthy() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "busy", BUSY, &[]);
    let start = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args);
        let (mut workload, _) = Workload::spawn("busy", command);
        workload.go();
        workload.results();
        workload
    };
    let contended = start(&[]);
    let mut waits = 0;
    for _ in 0..20 {
        let report = now(contended.pid());
        assert_eq!(report["deadlocks"], serde_json::json!([]), "{report}");
        waits += number(&report, "waiting") + number(&report, "passing");
    }
    assert!(
        waits > 0,
        "nobody waited at any of 20 looks: no test of anything"
    );
    contended.finish();
    let uncontended = start(&["alone"]);
    let text = text(uncontended.pid());
    assert!(text.contains(": no thread waits for a lock\n"), "{text}");
    assert!(!text.contains("DEADLOCK"));
    uncontended.finish();
}
