//! Events by name: what cannot be had is explained, what can is counted exactly; and the hooks of older kernels.

use std::process::Command;

use serde_json::Value;

use crate::kernel::require_live;
use crate::tool::Tool;
use crate::workload::{Workload, number};

fn run(tool: &str, args: &[&str]) -> std::process::Output {
    Command::new(crate::built(tool))
        .args(args)
        .output()
        .expect("the tool runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn events_that_cannot_be_had_are_explained() {
    if !require_live() {
        return;
    }
    for (event, complaint) in [
        (
            "tracepoint:sched:sched_swich",
            "no tracepoint sched:sched_swich; did you mean sched:sched_switch?",
        ),
        (
            "uprobe:libc:no_such_function",
            "no function no_such_function in",
        ),
        ("uprobe:no-such-library:malloc", "no file no-such-library"),
    ] {
        let output = run("profile", &["-e", event, "1"]);
        assert_eq!(output.status.code(), Some(1), "{event}");
        assert!(
            text(&output.stderr).contains(complaint),
            "{event}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn tracepoints_and_uprobes_are_counted_exactly() {
    if !require_live() {
        return;
    }
    let script = "for (1..997) { $parent = getppid() }";
    let samples = |args: &[&str]| {
        let all: Vec<&str> = args
            .iter()
            .copied()
            .chain(["-q", "-f", "--", "perl", "-e", script])
            .collect();
        let output = run("profile", &all);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let values = text(&output.stdout);
        let values = values
            .lines()
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        values.sum::<u64>()
    };
    assert_eq!(
        samples(&["-e", "tracepoint:syscalls:sys_enter_getppid"]),
        997
    );
    assert_eq!(samples(&["-e", "uprobe:libc:getppid"]), 997);
    let weighted = samples(&["-e", "uprobe:libc:malloc", "--weight", "arg1"]);
    assert!(
        weighted > 10_000,
        "perl starts with more than {weighted} bytes"
    );
}

/// Without sched_exit_tp (Linux 6.18) user stacks are walked at switch-out.
#[test]
fn the_older_kernels_path_counts_the_same() {
    if !require_live() {
        return;
    }
    let _alone = crate::kernel::alone();
    let mut workload = Workload::start(
        "waiter",
        &["--waits", "23", "--millis", "20", "--kinds", "sleep,pipe"],
    );
    let mut command = Command::new(crate::built("offcputime"));
    command
        .args(["-j", "-p", &workload.pid().to_string()])
        .env("USEKIT_HIDE_HOOKS", "sched_exit_tp");
    let tool = Tool::spawn("offcputime", command);
    tool.wait_attached();
    workload.go();
    let results = workload.results();
    tool.interrupt();
    let report: Value = serde_json::from_str(&tool.finish().stdout).expect("JSON");
    for thread in &results {
        let kind = thread["kind"].as_str().expect("a kind");
        let stacks = report["stacks"].as_array().expect("stacks").iter();
        let own = stacks.filter(|stack| stack["tid"] == thread["tid"] && stack["reason"] == kind);
        let (mut found, mut users) = (0, 0);
        for stack in own {
            found += stack["values"]
                .as_array()
                .expect("values")
                .iter()
                .filter_map(Value::as_u64)
                .sum::<u64>();
            users += stack["user"].as_array().expect("frames").len();
        }
        let truth = number(thread, "off_ns");
        // Switches that a sandbox's kernel hides cannot be made up for on this path, but they are counted.
        let unseen = number(&report["losses"], "out_of_order_ns");
        let allowed = truth / 100 + unseen;
        assert!(
            found.abs_diff(truth) <= allowed,
            "{kind}: {found} ns, the program measured {truth} ns, {unseen} ns lost"
        );
        assert!(users > 0, "{kind}: no user frames");
    }
    workload.finish();
}
