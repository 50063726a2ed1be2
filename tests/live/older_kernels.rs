//! The hooks that older kernels have, on a kernel that has more: the same numbers.

use std::collections::BTreeSet;
use std::process::Command;

use crate::off_cpu::Times;
use crate::off_cpu::stacks;
use crate::offcputime::assert_reasons_are_the_programs;
use crate::prelude::*;
use crate::traced::sandwiched_as;

/// Without sched_exit_tp (Linux 6.18) user stacks are walked at switch-out.
#[test]
fn the_older_kernels_path_counts_the_same() {
    let _machine = Machine::alone();
    let workload = Workload::start("waiter", "--waits 23 --millis 20 --kinds sleep,pipe");
    let mut command = Tool::command("offcputime", "-m 0");
    command.env("USEKIT_HIDE_HOOKS", "sched_exit_tp");
    let found = sandwiched_as("offcputime", command, workload);
    assert_reasons_are_the_programs(&found, false);
    let stacks_of_all = list(&found.report, "stacks").iter();
    let tids: BTreeSet<u64> = stacks_of_all.map(|stack| number(stack, "tid")).collect();
    let unseen = |tid: &u64| Times::of(&found, *tid, false).unseen();
    let unseen: u64 = tids.iter().map(unseen).sum();
    assert_eq!(number(&found.report, "losses.out_of_order"), unseen);
    for thread in &found.results {
        let own = stacks(&found.report, number(thread, "tid"));
        let mut own = own.filter(|stack| stack["reason"] == thread["kind"]);
        assert!(
            own.any(|stack| !list(stack, "user").is_empty()),
            "no user frames: {thread}"
        );
    }
}

/// Tests that hold the state of tasks to account, run once more without what came after Linux 5.10: task storage, locks in
/// maps, the place to walk stacks at.
#[test]
fn state_in_a_hash_table_counts_the_same() {
    let _machine = Machine::alone();
    let tests = std::env::current_exe().expect("this program");
    let output = Command::new(tests)
        .arg("--exact")
        .args([
            "offcputime::phases_add_up_to_threads_times_wall",
            "pressure::spinners_lose_what_the_kernel_says",
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
    let _machine = Machine::alone();
    const ROUNDS: usize = 997;
    let own = std::process::id();
    let mut command = Tool::command("runqlat", format!("-L -j -p {own}"));
    command.env("USEKIT_HIDE_HOOKS", "task_storage");
    let tool = Tool::spawn("runqlat", command);
    tool.wait_attached();
    let (mut ours, mut strangers) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..ROUNDS {
        // SAFETY: takes nothing and cannot fail.
        let born = std::thread::spawn(|| unsafe { libc::gettid() });
        let born = born.join().expect("nothing to fail");
        ours.insert(u64::try_from(born).expect("an ID"));
        let mut stranger = Command::new("true").spawn().expect("true runs");
        strangers.insert(u64::from(stranger.id()));
        stranger.wait().expect("our own child");
    }
    let report = tool.report();
    let groups = list(&report, "groups");
    let unseen = number(&report, "losses.unseen");
    assert_within(
        "threads",
        groups.len() as u64 + unseen,
        ours.len() as u64..,
        &report,
    );
    for group in groups {
        let tid = number(group, "tid");
        // IDs come again where others make many processes meanwhile.
        let is_strange = strangers.contains(&tid) && !ours.contains(&tid);
        assert!(!is_strange, "{tid} is not ours: {group}");
    }
}
