//! Options that the replay of profile draws.

use bpf::profile::types::{profile_config, stack_config, target_config, target_mode};
use fastrand::Rng;

/// The tool itself.
pub(crate) const TOOL: u32 = 11;

pub(crate) fn config(rng: &mut Rng) -> profile_config {
    profile_config {
        stacks: stack_config {
            no_user: u32::from(rng.u32(0..3) == 0),
            no_kernel: u32::from(rng.u32(0..3) == 0),
        },
        idle: u32::from(rng.bool()),
        by_thread: u32::from(rng.bool()),
        every: rng.u64(1..5),
        weight_arg: rng.u32(0..7),
        weight_offset: rng.u32(0..9),
        weight_size: *rng.choice(&[0, 1, 2, 4, 8]).expect("some"),
        weight_signed: u32::from(rng.bool()),
        everything: u32::from(rng.bool()),
        pad: 0,
    }
}

pub(crate) fn targets(rng: &mut Rng) -> target_config {
    target_config {
        mode: target_mode(rng.u32(0..3)),
        own_tgid: TOOL,
        own_since_ns: 500,
        ..target_config::default()
    }
}
