//! `lockstat --hold` on a program that times its own holds, and on one that locks in a tight loop.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::{alone, beside};
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

const HOLDS: &str = include_str!("../workloads/locks/holds.c");

fn holds(dir: &Path) -> PathBuf {
    compile(dir, "holds", HOLDS, &["-g"])
}

fn hold(workload: &Workload, options: &[&str]) -> Tool {
    let pid = workload.pid().to_string();
    let args = [&["--hold", "-p", &pid], options].concat();
    Tool::start("lockstat", &args)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr))
}

#[test]
fn holds_are_as_many_and_as_long_as_the_program_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (mut workload, _) = Workload::spawn("holds", Command::new(holds(dir.path())));
    let tool = hold(&workload, &["-j"]);
    tool.wait_attached();
    workload.go();
    let truth = workload.results();
    tool.interrupt();
    let output = tool.finish();
    let report = json(&output);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let trap_ns = number(&report, "trap_ns");
    assert_eq!(report["stopped"], Value::Null, "{report}");
    assert_eq!(truth.len(), 5);
    for known in truth {
        let locks = report["locks"].as_array().expect("locks");
        let is_it =
            |lock: &&Value| lock["address"] == known["address"] && lock["mode"] == known["mode"];
        let lock = locks.iter().find(is_it);
        let lock = lock.unwrap_or_else(|| panic!("{known} is not in {report}"));
        assert_eq!(lock["holds"]["count"], known["holds"], "{lock}");
        assert_eq!(lock["tries_failed"], known["tries_failed"], "{lock}");
        assert_eq!(lock["timed_out"], known["timed_out"], "{lock}");
        assert_eq!(lock["still_held"], 0);
        let (held, measured) = (number(&known, "held_ns"), number(&lock["holds"], "sum_ns"));
        // Between the lock's return and the program's clock, and back, there is a trap on each side.
        let traps = 2 * trap_ns * number(&known, "holds");
        eprintln!("{}: {held} ns, measured {measured}", known["mode"]);
        assert!(
            measured >= held && measured <= held + held / 50 + traps,
            "{measured} of {held} + {traps}: {lock}"
        );
        let caller = lock["caller"].as_str().expect("a caller");
        assert!(
            caller.starts_with("hold_") || caller == "take_turns",
            "{caller}"
        );
    }
    // Nothing else here locks anything, except the dynamic linker for each new thread.
    let locks = report["locks"].as_array().expect("locks").iter();
    let names = locks.map(|lock| lock["lock"].as_str().expect("a name"));
    assert_eq!(names.filter(|name| !name.starts_with("ld-")).count(), 5);
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn a_tight_loop_is_released_within_a_second_and_told_so() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(holds(dir.path()));
    command.arg("loop");
    let (mut workload, _) = Workload::spawn("holds", command);
    workload.go();
    workload.results();
    let output = hold(&workload, &["-j", "--strict", "60"]).finish();
    let report = json(&output);
    let stopped = &report["stopped"];
    let released_ns = number(stopped, "after_ns") + number(&report, "detached_in_ns");
    eprintln!("released after {released_ns} ns: {stopped}");
    assert!(released_ns < 1_000_000_000, "{report}");
    assert!(stopped["share_percent"].as_f64() > Some(5.0));
    assert_eq!(output.code, 3, "--strict: it saw a part only");
    assert!(
        output.stderr.contains("probes taken away after"),
        "{}",
        output.stderr
    );
    // What it saw until then is there.
    assert_eq!(report["locks"][0]["caller"], "spin");
    assert!(
        number(&report["locks"][0]["holds"], "count") > 100,
        "{report}"
    );
    // And it is really gone: an uncontended pair takes no trap.
    workload.go();
    let pair_ns = number(&workload.results()[0], "pair_ns");
    assert!(
        pair_ns < number(&report, "trap_ns"),
        "{pair_ns} ns for a pair, as if there were traps in it"
    );
    workload.finish();
}

/// They inherit the breakpoints, and their traps are neither counted nor in the limit.
#[test]
fn children_that_a_target_forks_are_freed_of_the_probes_while_it_keeps_them() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(holds(dir.path()));
    command.arg("fork");
    let (mut workload, _) = Workload::spawn("holds", command);
    let tool = hold(&workload, &["-j", "-v"]);
    tool.wait_attached();
    workload.go();
    let children = workload.results();
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    let report = json(&output);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(children.len(), 2, "a child and its child");
    for child in &children {
        let (pair_ns, untraced_ns) = (number(child, "pair_ns"), number(child, "untraced_ns"));
        assert!(pair_ns <= 20 * untraced_ns + 100, "{child}, {report}");
    }
    assert_eq!(report["stopped"], Value::Null);
    assert_eq!(report["forked"]["processes"], 1, "the target's own");
    // One by one, the kernel frees a child at its first trap.
    let freed_within_ns = number(&report["forked"], "freed_within_ns");
    assert_eq!(
        freed_within_ns > 0,
        output.stderr.contains("uprobe_multi"),
        "{report}"
    );
}

#[test]
fn programs_without_glibc_are_refused_with_the_reason() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "static", HOLDS, &["-static"]);
    let (workload, _) = Workload::spawn("static", Command::new(program));
    let output = hold(&workload, &["1"]).finish();
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("has not mapped glibc"),
        "{}",
        output.stderr
    );
    let output = Tool::start("lockstat", &["--hold", "1"]).finish();
    assert!(output.code == 2 && output.stderr.contains("--pid <PID>"));
    workload.finish();
}

#[test]
fn what_the_kernel_offers_is_said_and_no_process_probed_or_looked_at() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, _) = Workload::spawn("holds", Command::new(holds(dir.path())));
    let now = Tool::start("lockstat", &["--now", "--probe"]);
    for (tool, used) in [
        (hold(&workload, &["--probe", "1"]), "\nuses lock_entered, "),
        (now, "\nuses look\n"),
    ] {
        let output = tool.finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(
            output.stdout.contains(used) && output.stderr.is_empty(),
            "{output:?}"
        );
    }
    workload.finish();
}
