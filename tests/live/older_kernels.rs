//! The hooks that older kernels have, on a kernel that has more: the same numbers.

use std::process::Command;

use serde_json::Value;

use crate::kernel::require_live;
use crate::tool::Tool;
use crate::workload::{Workload, number};

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
