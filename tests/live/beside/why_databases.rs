//! why on programs that wait for a database of SQLite's.

use std::process::Command;

use crate::beside::interpreters::source;
use crate::prelude::*;
use crate::why::{ALL, kind_ns, lines};

/// Nobody ends such a wait: the kernel's list of locks tells who is in its way, another process or the waiter's own.
#[test]
fn who_has_a_database_locked_is_named() {
    let _machine = Machine::beside();
    for mode in ["rollback", "wal", "own"] {
        let mut command = Command::new("/usr/bin/python3");
        command.arg("-I").arg(source("database.py"));
        command.args([mode, env!("CARGO_TARGET_TMPDIR")]);
        let program = Workload::spawn("python3", command);
        let pid = program.pid();
        let (report, results) = traced("why", ALL, program);
        let truth = &results[0];
        let mut waits = lines(&report, "file-lock").into_iter();
        let line = waits.find(|line| !line["locked_by"].is_null());
        let line = line.unwrap_or_else(|| panic!("{mode}: {report:#}"));
        let by = &line["locked_by"];
        assert_eq!(by["pid"], truth["holder"], "{mode}: {line:#}");
        assert_eq!(by["pid"] == pid, mode == "own", "{mode}: {line:#}");
        assert_eq!(by["file"], truth["file"], "{mode}: {line:#}");
        // Between its naps it is on a CPU, or in the queue for one.
        let [begin_ns, end_ns] = ["begin_ns", "end_ns"].map(|edge| number(truth, edge));
        let waited_ns = end_ns - begin_ns.max(number(&report, "start_ns"));
        let others = ["on-cpu", "run-queue", "block-io", "unseen", "lost", "futex"];
        let others_ns: u64 = others.iter().map(|kind| kind_ns(&report, kind)).sum();
        let bounds = waited_ns.saturating_sub(others_ns)..=waited_ns;
        assert_within("file-lock", kind_ns(&report, "file-lock"), bounds, &report);
    }
}
