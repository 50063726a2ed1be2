//! runqlat without a budget, and within one that allows to look all the time: tables, losses and slow waits are the same.

use fastrand::Rng;

use crate::asked::{Asked, Slow, call, losses};
use crate::entries::{assert_same, entries};
use crate::host::machine::Machine;
use crate::one_window::play_both;
use crate::{ask_sleepers, waiting_ns};

const LOSSES: [&str; 3] = ["groups_full", "buckets_full", "culprits_full"];

fn open(machine: &mut Machine, seed: u64, is_limited: bool) {
    Asked::random(&mut Rng::with_seed(seed)).tell(machine);
    if is_limited {
        machine.host.write("in_windows", 1_u32);
        call(machine, "host_next_clock");
        for thread in &machine.threads {
            machine.host.tell("host_find_wait", (thread.task,));
        }
    }
}

/// Threads that wait when the window closes, and for how long.
fn waiting(machine: &Machine) -> Vec<(u32, u64)> {
    let waiting = machine
        .alive()
        .map(|thread| (thread.tid, waiting_ns(machine, thread)));
    waiting.collect()
}

fn assert_both(exact: &Machine, within_budget: &Machine, case: &str) {
    assert_eq!(waiting(exact), waiting(within_budget), "{case}");
    // One goes on in the other half, and the other one is told that its window is over.
    exact.host.write("epoch", 1_u32);
    within_budget.host.tell("host_end", (within_budget.now,));
    assert_same(&entries(&exact.host), &entries(&within_budget.host), case);
    for loss in LOSSES {
        let [one, other] = [exact, within_budget].map(|run| run.host.read::<u64>(loss));
        assert_eq!(one, other, "{case}, {loss}");
    }
    exact.host.tell("host_end", (exact.now,));
    ask_sleepers(exact);
    ask_sleepers(within_budget);
    assert_eq!(losses(exact), losses(within_budget), "{case}");
    assert_eq!(Slow::told(exact), Slow::told(within_budget), "{case}");
}

#[test]
fn one_window_is_the_exact_run() {
    play_both("runqlat", open, assert_both);
}
