//! The hooks that older kernels have, on a kernel that has more: the same numbers.

use std::process::Command;

use serde_json::Value;

use crate::kernel::alone;
use crate::offcputime::{assert_waited, stacks, waited};
use crate::tool::Tool;
use crate::workload::{Workload, number};

/// Without sched_exit_tp (Linux 6.18) user stacks are walked at switch-out.
#[test]
fn the_older_kernels_path_counts_the_same() {
    let Some(_machine) = alone() else {
        return;
    };
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
        let (kind, tid) = (
            thread["kind"].as_str().expect("a kind"),
            number(thread, "tid"),
        );
        let found = waited(&report, tid, kind) + waited(&report, tid, "preempted");
        // Switches that a sandbox's kernel hides cannot be made up for on this path, but they are counted.
        assert_waited(found, thread, number(&report["losses"], "out_of_order_ns"));
        let own = stacks(&report, tid).filter(|stack| stack["reason"] == kind);
        let users: usize = own
            .map(|stack| stack["user"].as_array().expect("frames").len())
            .sum();
        assert!(users > 0, "{kind}: no user frames");
    }
    workload.finish();
}

/// Tests that hold the state of tasks to account, run once more without what came after Linux 5.10: task storage, locks in
/// maps, the place to walk stacks at.
#[test]
fn state_in_a_hash_table_counts_the_same() {
    let Some(_machine) = alone() else {
        return;
    };
    let tests = std::env::current_exe().expect("this program");
    let output = Command::new(tests)
        .arg("--exact")
        .args([
            "offcputime::phases_add_up_to_threads_times_wall",
            "pressure::spinners_lose_and_cause_what_schedstat_says_and_some_is_psis",
            "runqlat::spinners_on_one_cpu_wait_as_long_as_the_kernel_says",
            "runqlat::a_storm_of_wakeups_waits_as_long_as_the_kernel_says",
            "runqlat::every_wakeup_of_a_prime_number_is_counted",
            "targets::a_command_counts_from_its_exec_on",
            "targets::a_name_counts_while_a_thread_has_it",
            "traps::a_new_threads_first_wait_counts",
        ])
        .env("USEKIT_HIDE_HOOKS", "sched_exit_tp,task_storage,spin_lock")
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains(" 8 passed"),
        "{said}"
    );
}

/// The kernel gives the memory of a task that has ended to the next one, which may be nobody's target.
#[test]
fn state_in_a_hash_table_is_not_inherited() {
    let Some(_machine) = alone() else {
        return;
    };
    const ROUNDS: usize = 997;
    let mut command = Command::new(crate::built("runqlat"));
    command
        .args(["-L", "-j", "-p", &std::process::id().to_string()])
        .env("USEKIT_HIDE_HOOKS", "task_storage");
    let tool = Tool::spawn("runqlat", command);
    tool.wait_attached();
    let mut strangers = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::spawn(|| ()).join().expect("nothing to fail");
        let mut stranger = Command::new("true").spawn().expect("true runs");
        strangers.push(u64::from(stranger.id()));
        stranger.wait().expect("our own child");
    }
    tool.interrupt();
    let report: Value = serde_json::from_str(&tool.finish().stdout).expect("JSON");
    let groups = report["groups"].as_array().expect("groups");
    let unseen = number(&report["losses"], "unseen");
    assert!(
        groups.len() as u64 + unseen >= ROUNDS as u64,
        "{} threads, {unseen} unseen",
        groups.len()
    );
    for group in groups {
        let tid = number(group, "tid");
        assert!(!strangers.contains(&tid), "{tid} is not ours: {group}");
    }
}
