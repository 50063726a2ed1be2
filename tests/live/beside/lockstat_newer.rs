//! Locks of a C library and of a Go newer than the system's: where either keeps its words has changed.

use std::path::Path;
use std::process::Command;

use oracle::Bracket;

use crate::beside::lockstat_user::{PTHREAD, assert_pthread, locks};
use crate::c_program::run;
use crate::found::unended;
use crate::lockstat_played::{account, waited};
use crate::prelude::*;

/// What a script of `setup` prints, which finds something newer or puts it below the target directory: a word a line.
pub(crate) fn newer(name: &str) -> Vec<String> {
    let target = crate::built("lockstat").with_file_name(format!("../{name}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../setup/{name}"));
    let words = run(Command::new(script).arg(target));
    words.lines().map(str::to_owned).collect()
}

/// glibc 2.41: condition variables lost a word in front of those that are waited for.
#[test]
fn locks_of_a_newer_c_library_are_counted_held_and_named() {
    let _machine = Machine::beside();
    let loader = newer("glibc");
    let program = locks(PTHREAD, "");
    let mut command = Command::new(&loader[0]);
    command.args(&loader[1..]).arg(program.path());
    let program = Workload::spawn("locks", command);
    let account = account(program, "");
    unended(&account.report);
    assert_pthread(&account);
}

/// Go 1.24: each thread sleeps on a word of its own. The sleeps of those that fight are waits for the channel's lock and for Go's
/// scheduler, all of them.
#[test]
fn locks_of_a_newer_gos_runtime_are_one_row_with_every_wait() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("channel.go"), dir.path().join("locks"));
    let text = include_str!("../../workloads/locks/channel.go");
    std::fs::write(&source, text).expect("a file");
    run(Command::new(&newer("go")[0])
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", dir.path().join("cache"))
        .env("HOME", dir.path()));
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    let account = account(Workload::spawn("locks", command), "");
    let locks = account.locks();
    let runtimes = |lock: &&Value| lock["name"] == "locks of Go's runtime";
    let fought: Vec<&Value> = locks.iter().filter(runtimes).collect();
    let [fought] = fought[..] else {
        panic!("one row: {locks:#?}")
    };
    assert_eq!(fought["class"], "go");
    for thread in &account.played {
        let waits = account.waits_of(thread.waiter);
        let truth: Bracket = waits.iter().map(|wait| wait.pair).collect();
        assert_bracketed("waits", waited(locks, thread.waiter), &truth, fought);
        let channel = of_channel(fought, thread.waiter);
        assert!(channel > 0, "{locks:#?}");
    }
    assert_eq!(account.played.len(), 4);
}

/// Waits of a thread for the lock of Go's channel.
fn of_channel(lock: &Value, tid: u64) -> u64 {
    let own = list(lock, "waiters").iter().filter(|waiter| {
        let caller = waiter["caller"].as_str();
        number(waiter, "tid") == tid
            && matches!(caller, Some("runtime.chansend" | "runtime.chanrecv"))
    });
    sum(own, "count")
}
