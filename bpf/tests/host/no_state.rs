//! Kernels that do not say in which state threads leave a CPU: programs look there themselves.

use crate::host;
use crate::host::machine::Machine;

/// Plays 10,000 events for each of some seeds; `check` compares.
pub(crate) fn play_without_state(tool: &str, check: impl Fn(&mut Machine, u64)) {
    let object = host::compile(tool);
    for seed in 0..20 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.hides_states = true;
        machine.steps(10_000);
        check(&mut machine, seed);
    }
}
