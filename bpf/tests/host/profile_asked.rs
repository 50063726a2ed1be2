//! Options that the replay of profile draws.

use fastrand::Rng;

/// The tool itself.
pub(crate) const TOOL: u32 = 11;

/// `struct profile_config` of profile.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) no_user: u32,
    pub(crate) no_kernel: u32,
    pub(crate) idle: u32,
    pub(crate) by_thread: u32,
    pub(crate) every: u64,
    pub(crate) weight_arg: u32,
    pub(crate) weight_offset: u32,
    pub(crate) weight_size: u32,
    pub(crate) weight_signed: u32,
    pub(crate) everything: u32,
    pub(crate) pad: u32,
}

impl Config {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        Self {
            no_user: u32::from(rng.u32(0..3) == 0),
            no_kernel: u32::from(rng.u32(0..3) == 0),
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
}

/// `struct target_config` of targets.bpf.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Targets {
    pub(crate) mode: u32,
    pub(crate) pid_namespace: u32,
    pub(crate) own_tgid: u32,
    pub(crate) by: [u32; 4],
    pub(crate) cgroup_id: u64,
    pub(crate) own_since_ns: u64,
}

impl Targets {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        Self {
            mode: rng.u32(0..3),
            own_tgid: TOOL,
            own_since_ns: 500,
            ..Self::default()
        }
    }
}
