//! One log under a run without a budget, and under one within a budget whose only window is all of it.

use std::path::Path;

use crate::host;
use crate::host::machine::Machine;

/// Behind the end of every log.
const NEVER_NS: u64 = 1 << 60;

/// Plays the log that a seed stands for to the end of the window, which is now. `open` runs before, with programs that have just been
/// attached; `end_ns`: by the clock, 0 if the run is told to end.
fn play_log(object: &Path, seed: u64, open: impl Fn(&mut Machine), end_ns: u64) -> Machine {
    let mut machine = Machine::new(object, seed, NEVER_NS);
    machine.host.tell("host_opens", (0_u64,));
    machine.is_detached = true;
    machine.steps(200);
    machine.is_detached = false;
    machine.leave_to_user_space();
    open(&mut machine);
    machine.now += 1;
    machine.host.write("window_end_ns", end_ns);
    machine.host.tell("host_opens", (machine.now,));
    machine.steps(5_000);
    machine.now += 1;
    machine
}

/// Plays 50 logs in both ways. `open` sets up a run before its window opens; `is_limited`: within a budget. `check` compares the
/// one without a budget to the other one.
pub(crate) fn play_both(
    tool: &str,
    open: impl Fn(&mut Machine, u64, bool),
    check: impl Fn(&Machine, &Machine, &str),
) {
    let object = host::compile(tool);
    for seed in 0..50 {
        let play = |end_ns, is_limited| {
            let open = |machine: &mut Machine| open(machine, seed, is_limited);
            play_log(&object, seed, open, end_ns)
        };
        let within_budget = play(0, true);
        // The clock ends every other run.
        let exact = play(within_budget.now * (seed % 2), false);
        assert_eq!(exact.now, within_budget.now, "the same log");
        check(&exact, &within_budget, &format!("seed {seed}"));
    }
}
