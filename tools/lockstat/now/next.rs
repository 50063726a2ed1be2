//! The command that looks further than a snapshot.

use profile::model::Task;
use session::chosen;
use session::next::{Step, in_remark};
use session::targets::Targets;

use super::snapshot::Snapshot;
use super::thread::Phase;
use super::verdict::{Root, Verdict};

/// Looks at the rest of a process that is deadlocked, else at the holder that most threads are behind, else at waits of other kinds.
pub(crate) fn next(
    targets: &Targets,
    snapshot: &Snapshot,
    verdict: &Verdict,
    is_there: fn(u32) -> bool,
) -> String {
    let task = |thread: usize| &snapshot.threads.all[thread].task;
    // Another question is asked where nothing is left of what was chosen, and none about everybody.
    let of = |step: Step, tgid: Option<u32>, answers: &str| {
        let one = tgid.map(|tgid| format!("-p {tgid}"));
        let target = one.or_else(|| chosen::options(targets, is_there));
        target.map_or_else(
            || Step::Shortages.line(""),
            |target| step.line_for(&target, answers),
        )
    };
    if let Some(deadlock) = verdict.deadlocks.first() {
        let mut members = deadlock.members.iter().map(|member| task(*member).tgid);
        let member = members.find(|tgid| is_there(*tgid));
        return of(Step::Waits, member, "where the other threads wait");
    }
    let Some(tree) = verdict.trees.first() else {
        return of(Step::Waits, None, "where threads wait instead");
    };
    if let Root::Thread(holder) = tree.root
        && let phase = snapshot.threads.all[holder].phase
        && let Some(line) = of_holder(phase, task(holder), is_there)
    {
        return line;
    }
    let mut waiters = tree.behind.iter().map(|waiter| task(*waiter).tgid);
    let waiter = waiters.find(|tgid| is_there(*tgid));
    of(Step::LockStacks, waiter, Step::LockStacks.answers())
}

/// Looks at a thread that others wait for, according to what it is doing.
fn of_holder(phase: Phase, holder: &Task, is_there: fn(u32) -> bool) -> Option<String> {
    if !is_there(holder.tgid) {
        return None;
    }
    let comm = in_remark(&holder.comm, "the holder");
    let (step, what) = match phase {
        Phase::Running => (Step::CpuTime, format!("what {comm} runs")),
        Phase::Runnable => (
            Step::RunQueue,
            format!("behind whom {comm} waits for a CPU"),
        ),
        Phase::Asleep => (Step::Waits, format!("where {comm} sleeps")),
    };
    Some(step.line_for(&format!("-p {}", holder.tgid), &what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::task;

    #[test]
    fn a_holder_is_looked_at_by_what_it_does() {
        let holder = |tgid| task("a\u{1b}b", tgid, 12);
        let next = |phase| of_holder(phase, &holder(11), |pid| pid == 11).unwrap();
        assert_eq!(
            next(Phase::Running),
            "next: profile -p 11 10   # what the holder runs"
        );
        assert!(next(Phase::Runnable).starts_with("next: runqlat -p 11 5 1 "));
        assert!(next(Phase::Asleep).starts_with("next: offcputime -p 11 10 "));
        assert_eq!(of_holder(Phase::Running, &holder(9), |pid| pid == 11), None);
    }
}
