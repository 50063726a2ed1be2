//! `lockstat --now` on programs that are stuck, and know how; and on busy ones, which are not.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::args::Args;
use crate::beside::containers;
use crate::c_program::run;
use crate::kernel::{is_in_call, schedstat, tasks, until};
use crate::prelude::*;

pub(crate) const STUCK: &str = include_str!("../../workloads/locks/stuck.c");

pub(crate) fn now(pid: u32) -> Value {
    let args = format!("--now -j -p {pid}");
    Tool::run("lockstat", args).ok().report()
}

pub(crate) fn told(pid: u32) -> String {
    Tool::run("lockstat", format!("--now -p {pid}")).stdout
}

/// The program whose threads come to sleep for ever.
pub(crate) fn stuck(flags: impl Args) -> Program {
    Program::c("stuck", STUCK, flags)
}

/// A process of it, and what it knows of its waits, by thread.
pub(crate) struct Stuck {
    pub(crate) workload: Workload,
    pub(crate) known: HashMap<u64, Value>,
}

impl Stuck {
    pub(crate) fn in_program(program: &Program, args: impl Args) -> Self {
        Self::of(program.start(args))
    }

    /// Waits until all its threads sleep.
    pub(crate) fn of(mut workload: Workload) -> Self {
        workload.go();
        let waits = workload.results().into_iter();
        let by_tid = waits.map(|wait| (number(&wait, "tid"), wait));
        Self {
            known: by_tid.collect(),
            workload,
        }
    }

    pub(crate) fn now(&self) -> Value {
        now(self.workload.pid())
    }

    fn told(&self) -> String {
        told(self.workload.pid())
    }

    /// The wait has these fields as the program knows them.
    pub(crate) fn assert_known(&self, wait: &Value, fields: &[&str]) {
        let truth = self.known.get(&number(wait, "tid"));
        let truth = truth.unwrap_or_else(|| panic!("{wait} of no waiter"));
        for field in fields {
            assert_eq!(wait[field], truth[field], "{field} of {wait}");
        }
    }

    /// Every wait is as the program knows it, and there is no other.
    fn assert_waits(&self, report: &Value) {
        let waits = list(report, "waits");
        assert_eq!(waits.len(), self.known.len(), "{report}");
        for wait in waits {
            let fields: &[&str] = match text(wait, "class") {
                "end of thread" => &["class"],
                _ => &["class", "address"],
            };
            self.assert_known(wait, fields);
            self.assert_holder(wait);
            let user = list(wait, "user");
            let has = |name: &str| user.iter().any(|frame| frame == name);
            assert!(wait["user_complete"] == true && (has("take_second") || has("lock_and_join")));
        }
    }

    fn assert_holder(&self, wait: &Value) {
        let truth = &self.known[&number(wait, "tid")];
        assert_eq!(wait["holder"]["tid"], truth["holder"], "{wait}");
    }

    /// The deadlock is the program's own circle: from any member, holder by holder, back to it. Gives its members.
    pub(crate) fn assert_circle(&self, deadlock: &Value, length: usize) -> Vec<u64> {
        let members = ids(deadlock, "threads");
        let mut circle = vec![members[0]];
        loop {
            let next = number(&self.known[&circle[circle.len() - 1]], "holder");
            if next == members[0] {
                break;
            }
            circle.push(next);
        }
        assert_eq!((members.len(), &members), (length, &circle), "{deadlock}");
        members
    }
}

/// A ring of locks, one thread after the other, with some more behind it.
fn assert_ring(kinds: &str, innocents: usize, word: &str) {
    let _machine = Machine::beside();
    let program = stuck("-g");
    let stuck = Stuck::in_program(&program, format!("ring {kinds} {innocents}"));
    let report = stuck.now();
    stuck.assert_waits(&report);
    let deadlock = only(&report, "deadlocks");
    let members = stuck.assert_circle(deadlock, kinds.len());
    let behind = ids(deadlock, "behind");
    assert_eq!(behind.len(), innocents);
    let is_innocent = |tid: &u64| stuck.known.contains_key(tid) && !members.contains(tid);
    assert!(behind.iter().all(is_innocent));
    assert_eq!(deadlock["timed"], kinds.contains('t'));
    assert_eq!(deadlock["kind"], "circle");
    assert_eq!(deadlock["certain"], true);

    let (text, pid) = (stuck.told(), stuck.workload.pid());
    let who = match members.len() {
        1 => format!("1 thread of process {pid} waits for itself"),
        more => format!("{more} threads of process {pid} wait for each other"),
    };
    assert!(text.contains(&format!("\n{word}: {who}")), "{text}");
    // Each member's stack, from the kernel's leaf to the thread's root.
    for frame in ["\n    take_second\n", "\n    clone3\n"] {
        assert_eq!(text.matches(frame).count(), members.len(), "{text}");
    }
    stuck.workload.finish();
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
    let _machine = Machine::beside();
    let program = stuck("-g");
    let stuck = Stuck::in_program(&program, "join");
    let report = stuck.now();
    stuck.assert_waits(&report);
    stuck.assert_circle(&report["deadlocks"][0], 2);
    stuck.workload.finish();
}

#[test]
fn a_lock_whose_holder_has_exited_is_abandoned() {
    let _machine = Machine::beside();
    let program = stuck("-g");
    let stuck = Stuck::in_program(&program, "gone");
    let report = stuck.now();
    stuck.assert_waits(&report);
    let deadlock = only(&report, "deadlocks");
    assert_eq!(deadlock["kind"], "abandoned");
    assert_eq!(ids(deadlock, "threads").len(), 2);
    assert_eq!(report["waits"][0]["holder"]["kind"], "gone");
    stuck.workload.finish();
}

/// Its locks have their words in another order, and its stacks have no names.
#[test]
fn a_32_bit_programs_locks_name_their_holders_too() {
    let _machine = Machine::beside();
    let program = stuck("-m32");
    for (args, kind, members) in [
        ("ring mm 1", "circle", 2),
        ("ring mw 0", "circle", 2),
        ("ring mpt 0", "circle", 3),
        ("gone", "abandoned", 2),
    ] {
        let stuck = Stuck::in_program(&program, args);
        let report = stuck.now();
        assert_eq!(report["waiting"], stuck.known.len(), "{report}");
        for wait in list(&report, "waits") {
            stuck.assert_known(wait, &["class", "address"]);
            stuck.assert_holder(wait);
        }
        let deadlock = only(&report, "deadlocks");
        assert_eq!(deadlock["kind"], kind);
        assert_eq!(ids(deadlock, "threads").len(), members);
        if kind == "circle" {
            stuck.assert_circle(deadlock, members);
        }
        assert!(stuck.told().contains("\nDEADLOCK"));
        stuck.workload.finish();
    }
}

#[test]
fn owners_are_known_by_the_ids_of_their_own_pid_namespace() {
    let _machine = Machine::beside();
    let program = stuck("-g");
    let script = "mount -t proc none /proc && exec \"$@\"";
    let inside = containers::enter(script, &program.command("ring mm 1"));
    let stuck = Stuck::of(inside);
    // Inside they are called 2 and 3; here they are not.
    assert!(stuck.known.keys().all(|tid| *tid < 10));
    let report = stuck.now();
    let deadlock = only(&report, "deadlocks");
    assert_eq!(ids(deadlock, "threads").len(), 2);
    assert_eq!(ids(deadlock, "behind").len(), 1);
    stuck.workload.finish();
}

const RUST: &str = include_str!("../../workloads/locks/crossed.rs");

fn rust(dir: &Path, spare: &str) -> Workload {
    let (source, program) = (dir.join("rust.rs"), dir.join("rust"));
    fs::write(&source, RUST).expect("a file");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2021", "-O", "-g", "-o"]);
    run(rustc.args([&program, &source]));
    let mut command = Command::new(program);
    command.arg(spare);
    let mut workload = Workload::spawn("rust", command);
    workload.work();
    // All at once: who sleeps at the barrier, or in a call of the start, does not while the others do, too.
    let is_asleep = |task: &&PathBuf| is_in_call(task, &format!("{} ", libc::SYS_futex));
    let asleep = || {
        let tasks = tasks(workload.pid());
        let asleep = tasks.iter().filter(is_asleep);
        asleep.map(|task| schedstat(task)).collect::<Vec<_>>()
    };
    until("three threads sleep in futex calls", || {
        let before = asleep();
        before.len() == 3 && before == asleep()
    });
    workload
}

#[test]
fn a_rust_program_of_which_every_thread_waits_is_dead_though_no_lock_names_a_holder() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "");
    let report = now(workload.pid());
    let waits = list(&report, "waits").iter();
    let locks: Vec<&Value> = waits.filter(|wait| wait["class"] == "Rust mutex").collect();
    assert_eq!(locks.len(), 2, "{report}");
    for lock in locks {
        assert_eq!(lock["holder"]["kind"], "unrecorded");
    }
    let deadlock = &report["deadlocks"][0];
    assert_eq!(deadlock["kind"], "process", "{report}");
    // Both, and the one that joins them.
    assert_eq!(ids(deadlock, "threads").len(), 3);
    // Sentences go on in the next line.
    let text = told(workload.pid());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "wait for locks, and no thread is left that could release one";
    assert!(text.contains(why), "{text}");
    assert!(text.contains("whose holder is not recorded"), "{text}");
}

#[test]
fn a_rust_program_with_a_thread_left_is_not_called_dead() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "spare");
    let report = now(workload.pid());
    assert_eq!(report["waiting"], 2, "{report}");
    assert_eq!(report["deadlocks"], json!([]));
    let text = told(workload.pid());
    for part in ["1 thread behind Rust mutex", "not recorded"] {
        assert!(text.contains(part), "{text}");
    }
}

const BUSY: &str = include_str!("../../workloads/locks/busy.c");

#[test]
fn busy_programs_are_healthy() {
    let _machine = Machine::beside();
    let program = Program::c("busy", BUSY, "");
    let start = |args: &str| {
        let mut workload = program.start(args);
        workload.work();
        workload
    };
    let contended = start("");
    let (mut looks, mut waits) = (0, 0);
    // However often they have no CPU when it looks: where nobody waits nothing is tested.
    until("somebody waits, at one look of twenty or more", || {
        let report = now(contended.pid());
        assert_eq!(report["deadlocks"], json!([]), "{report}");
        waits += number(&report, "waiting") + number(&report, "passing");
        looks += 1;
        looks >= 20 && waits > 0
    });
    contended.finish();
    let uncontended = start("alone");
    let text = told(uncontended.pid());
    assert!(text.contains(": no thread waits for a lock\n"), "{text}");
    assert!(!text.contains("DEADLOCK"));
    uncontended.finish();
}
