//! Kernels that do not say in which state threads leave a CPU: programs look there themselves.

use crate::host::machine::{Machine, play_as};

pub(crate) fn play_without_state(tool: &str, check: impl Fn(&mut Machine, u64)) {
    let begin = |machine: &mut Machine| {
        // SAFETY: its type, as that of the function in its place.
        machine.calls.switch = unsafe { *machine.host.function("host_switch_pre_5_18") };
    };
    play_as(tool, begin, check);
}
