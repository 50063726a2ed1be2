//! Measures what tracing costs: CPU time of BPF programs, and the tool's own.

use std::fs;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use anyhow::Result;
use host::cpu_time::own_cpu_ns;
use libbpf_rs::Object;
use loader::counters::Counters;
use profile::losses::Losses;

use crate::windowed::Programs;

/// Starts counting when made; holds the kernel's BPF statistics on until dropped.
pub struct Meter {
    // Statistics cost every BPF program on the machine some 20 ns a run; they end with the descriptor.
    _statistics: Option<OwnedFd>,
    is_measuring: bool,
    started: Instant,
    own_cpu_ns: u64,
}

/// CPU time spent by some moment, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// In the programs that events run, and in the traps that lead to them; 0 where the kernel refuses to measure.
    pub events_ns: u64,
    /// By the tool itself: its iterators, and the process that reads names for it, included.
    pub own_ns: u64,
}

impl Spent {
    /// CPU ns.
    pub fn total(&self) -> u64 {
        self.events_ns + self.own_ns
    }

    /// The part that came on top of an earlier one.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            events_ns: self.events_ns.saturating_sub(earlier.events_ns),
            own_ns: self.own_ns.saturating_sub(earlier.own_ns),
        }
    }
}

impl Meter {
    /// Turns BPF statistics on.
    pub fn start() -> Self {
        // SAFETY: takes no pointers; returns a new descriptor or a negative errno.
        let fd: RawFd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        // SAFETY: a non-negative result is a descriptor that nobody else owns.
        let statistics = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        Self {
            is_measuring: statistics.is_some() || is_measuring_anyway(),
            _statistics: statistics,
            started: Instant::now(),
            own_cpu_ns: own_cpu_ns(),
        }
    }

    /// One that takes the kernel to measure: tests need not be privileged.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self {
            is_measuring: true,
            _statistics: None,
            started: Instant::now(),
            own_cpu_ns: own_cpu_ns(),
        }
    }

    /// Cost of these programs and of the tool so far. `trap_ns`: what each run of a program on functions of programs
    /// costs beside it.
    pub fn spent(&self, all: &[Programs<'_>], trap_ns: u64) -> Spent {
        let loaded = all.iter().flat_map(|programs| programs.object.progs());
        // Iterators run in the tool's own time.
        let by_events =
            loaded.filter(|program| !program.section().to_string_lossy().starts_with("iter/"));
        Spent {
            events_ns: by_events
                .filter_map(|program| {
                    let info = program_info(program.as_fd().as_raw_fd())?;
                    let is_trap = program.section().to_string_lossy().contains("uprobe");
                    Some(info.run_time_ns + u64::from(is_trap) * info.run_cnt * trap_ns)
                })
                .sum(),
            own_ns: own_cpu_ns(),
        }
    }

    /// True: the kernel measures BPF programs.
    pub(crate) fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// CPU time of the tool since the start, ns.
    pub fn own_cpu_ns(&self) -> u64 {
        own_cpu_ns().saturating_sub(self.own_cpu_ns)
    }

    /// Time since the start, ns.
    pub fn wall_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whether the administrator has it measure all the time.
fn is_measuring_anyway() -> bool {
    let switch = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
    switch.is_ok_and(|switch| switch.trim() == "1")
}

/// How often a program has run, as far as BPF statistics were on.
pub fn runs(program: &impl AsFd) -> u64 {
    program_info(program.as_fd().as_raw_fd()).map_or(0, |info| info.run_cnt)
}

/// Counts the events that the kernel kept from an object's programs because they were at work on that CPU, or another program that
/// shares their guard.
pub fn count_skipped(object: &Object, losses: &mut Losses) {
    let skipped = object
        .progs()
        .filter_map(|program| program_info(program.as_fd().as_raw_fd()))
        .map(|info| info.recursion_misses)
        .sum();
    losses.count("nested", "events: our BPF program ran on that CPU", skipped);
}

/// Every counter of what an object's programs did not count.
///
/// # Errors
///
/// The kernel does not hand them out.
pub fn losses(object: &Object, counters: &Counters) -> Result<Losses> {
    let mut losses = Losses::default();
    count_skipped(object, &mut losses);
    counters.count(&mut losses)?;
    Ok(losses)
}

pub(crate) fn program_info(fd: RawFd) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of::<libbpf_sys::bpf_prog_info>()).expect("a small struct");
    // SAFETY: `info` is zeroed and `bytes` is its size.
    let status = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
    (status == 0).then_some(info)
}

/// CPUs that are online now.
pub fn cpus_online() -> u64 {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) })
        .unwrap_or(1)
        .max(1)
}
