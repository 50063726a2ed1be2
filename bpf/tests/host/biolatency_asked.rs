//! Options that the replay of biolatency draws, and kernels.

use bpf::biolatency::types::{biolatency_config, phase, request_flags, target_config, target_mode};
use fastrand::Rng;

use crate::host::Host;

/// `enum phase`.
pub(crate) const DEVICE: u32 = 0;
pub(crate) const QUEUED: u32 = 1;
pub(crate) const BEFORE: u32 = 2;
pub(crate) const TOTAL: u32 = 3;

/// Cgroups have numbers from here on: each is below the one before.
pub(crate) const FIRST_CGROUP: u64 = 300;
pub(crate) const CGROUPS: usize = 30;
/// Levels below the root at which the tool looks.
pub(crate) const CGROUP_LEVELS: u64 = 24;

/// A kernel by what it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// 510 is 5.10.
    pub(crate) age: u32,
    pub(crate) flags: request_flags,
    /// Old tracepoints tell of the queue, too.
    pub(crate) with_queue: bool,
    pub(crate) has_alloc_time: bool,
}

impl Kernel {
    fn drawn(rng: &mut Rng) -> Self {
        let age = rng
            .choice([510, 511, 512, 517, 600, 605, 611])
            .expect("some");
        Self {
            age,
            flags: request_flags {
                flush_seq: 1 << rng.u32(2..8),
                io_stat: if age >= 611 { 1 << 13 } else { 0 },
            },
            with_queue: age == 510 && rng.bool(),
            has_alloc_time: rng.bool(),
        }
    }
}

/// Programs that are attached, but those that always are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    pub(crate) start: bool,
    pub(crate) insert: bool,
    pub(crate) issue: bool,
    pub(crate) merge: bool,
    pub(crate) bios: bool,
    pub(crate) done: bool,
}

impl Attached {
    fn by(config: &biolatency_config) -> Self {
        let (has_start, tracks) = (config.has_start > 0, config.track > 0);
        let is_total = config.phases == 1 << TOTAL;
        Self {
            start: has_start && (tracks || is_total),
            insert: tracks && !has_start,
            issue: tracks || !is_total || !has_start,
            merge: tracks,
            bios: config.phases >> BEFORE & 1 > 0 && has_start,
            done: config.total_at_done > 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) config: biolatency_config,
    pub(crate) kernel: Kernel,
    pub(crate) attached: Attached,
    /// `enum target_mode`.
    pub(crate) mode: u32,
}

impl Asked {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        let kernel = Kernel::drawn(rng);
        let age = kernel.age;
        let phases = rng
            .choice([
                1 << DEVICE,
                1 << TOTAL,
                1 << BEFORE | 1 << QUEUED | 1 << DEVICE,
            ])
            .expect("some");
        let mut sometimes = || u32::from(rng.u32(0..4) == 0);
        let (by_disk, by_process, by_cgroup) = (sometimes(), sometimes(), sometimes());
        let (by_dev, by_submitter, in_cgroup) = (sometimes(), sometimes(), sometimes());
        let (is_slow, by_flags) = (sometimes(), sometimes());
        let is_total = phases == 1 << TOTAL;
        let has_phases = phases & 1 << BEFORE > 0;
        let tracks = by_submitter + by_process + by_flags + is_slow + u32::from(has_phases) > 0;
        let has_start = age >= 605;
        let in_cgroups = by_cgroup + in_cgroup > 0;
        let config = biolatency_config {
            phases,
            by_disk,
            by_flags,
            by_process,
            by_cgroup,
            by_dev,
            by_submitter,
            track: u32::from(tracks),
            slower_ns: u64::from(is_slow) * rng.u64(1_000..60_000),
            slower_phase: phase(if is_total || has_phases {
                TOTAL
            } else {
                DEVICE
            }),
            has_start: u32::from(has_start),
            total_at_done: u32::from(is_total && has_start && !in_cgroups),
            stats_flag: if age >= 600 && rng.bool() {
                rng.u32(1..30)
            } else {
                0
            },
            cgroup_id: if in_cgroup > 0 {
                FIRST_CGROUP + rng.choice([0, 1, 5, 23, 24, 29]).expect("some")
            } else {
                0
            },
        };
        Self {
            config,
            kernel,
            attached: Attached::by(&config),
            mode: if by_submitter > 0 { rng.u32(0..3) } else { 0 },
        }
    }

    pub(crate) fn tell(&self, host: &Host, own_tgid: u32) {
        let targets = target_config {
            mode: target_mode(self.mode),
            own_tgid,
            own_since_ns: u64::MAX,
            ..target_config::default()
        };
        host.set("config", &self.config);
        host.set("request_flags", &self.kernel.flags);
        host.set("targets", &targets);
        host.write("host_age", self.kernel.age);
    }

    pub(crate) fn measures(&self, measured: u32) -> bool {
        self.config.phases >> measured & 1 > 0
    }

    /// A look at the queue tells whether the kernel stamps what is needed.
    pub(crate) fn sees_stamps(&self) -> bool {
        self.config.stats_flag > 0 && !self.measures(TOTAL)
    }
}
