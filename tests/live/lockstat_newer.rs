//! Locks of a C library and of a Go newer than the system's: where either keeps its words has changed.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::run;
use crate::kernel;
use crate::lockstat_played::{named, play};
use crate::lockstat_user::{PTHREAD, assert_pthread, compile};
use crate::workload::number;

/// What a script of `setup` prints, which finds something newer or puts it below the target directory: a word a line.
fn newer(name: &str) -> Vec<String> {
    let target = crate::built("lockstat").with_file_name(format!("../{name}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../setup/{name}"));
    let words = run(Command::new(script).arg(target));
    words.lines().map(str::to_owned).collect()
}

/// glibc 2.41: condition variables lost a word in front of those that are waited for.
#[test]
fn locks_of_a_newer_c_library_are_counted_held_and_named() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let loader = newer("glibc");
    let program = compile(dir.path(), PTHREAD, &[]);
    let mut command = Command::new(&loader[0]);
    command.args(&loader[1..]).arg(program.get_program());
    let (played, locks, _) = play(command, &["--strict"]);
    assert_pthread(&played, &locks);
    assert_eq!(named(&locks, "lock_normal")["caller"], "take_mutex");
}

/// Go 1.24: each thread sleeps on a word of its own. The sleeps of those that fight are waits for the channel's lock and for Go's
/// scheduler, all of them.
#[test]
fn locks_of_a_newer_gos_runtime_are_one_row_with_every_wait() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("channel.go"), dir.path().join("locks"));
    let text = include_str!("../workloads/locks/channel.go");
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
    let (played, locks, _) = play(command, &[]);
    let runtimes = |lock: &&Value| lock["name"] == "locks of Go's runtime";
    let fought: Vec<&Value> = locks.iter().filter(runtimes).collect();
    let [fought] = fought[..] else {
        panic!("one row: {locks:#?}")
    };
    assert_eq!(fought["class"], "go");
    let of_channel = |waiter: &&Value| {
        let caller = waiter["caller"].as_str();
        matches!(caller, Some("runtime.chansend" | "runtime.chanrecv"))
    };
    for thread in &played {
        let own = |lock: &Value, wanted: &dyn Fn(&&Value) -> bool| {
            let waiters = lock["waiters"].as_array().expect("waiters").iter();
            let own = waiters.filter(|waiter| number(waiter, "tid") == thread.waiter);
            own.filter(wanted)
                .map(|waiter| number(waiter, "count"))
                .sum::<u64>()
        };
        let all: u64 = locks.iter().map(|lock| own(lock, &|_| true)).sum();
        let channel = own(fought, &of_channel);
        eprintln!(
            "{} sleeps, {all} waits, {channel} of them for the channel",
            thread.rounds
        );
        // Until the thread begins to count, and when it has.
        assert!(
            all.abs_diff(thread.rounds) <= 5 && channel > 20,
            "{locks:#?}"
        );
    }
    assert_eq!(played.len(), 4);
}
