//! What a run cost, measured: BPF time, the tool's own CPU, memory.

use std::fs;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libbpf_rs::Object;
use serde_json::{Value, json};

use crate::budget::Summary;
use crate::losses::Losses;
use crate::scheduling::{self, Starved};
use crate::window::clock_ns;

/// Starts counting when made; holds the kernel's BPF statistics on until dropped.
pub struct Meter {
    // Statistics cost every BPF program on the machine some 20 ns a run; they end with the descriptor.
    _statistics: Option<OwnedFd>,
    is_measuring: bool,
    started: Instant,
    own_cpu_ns: u64,
}

/// What has been spent by some moment, CPU ns.
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

    /// What came on top of an earlier one.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            events_ns: self.events_ns.saturating_sub(earlier.events_ns),
            own_ns: self.own_ns.saturating_sub(earlier.own_ns),
        }
    }
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Runs of the tool's BPF programs.
    pub runs: u64,
    /// Time spent in them, ns; `None` when the kernel refused to measure.
    pub bpf_ns: Option<u64>,
    /// Runs that the kernel skipped because the same program was already running on that CPU.
    pub recursions: u64,
    /// CPU time of the tool itself, ns.
    pub own_cpu_ns: u64,
    /// Wall time, ns.
    pub wall_ns: u64,
    /// CPUs online.
    pub cpus: u64,
    /// Peak resident memory of the tool up to then, bytes; reports take memory, too, and say what it is when they are written.
    pub peak_bytes: u64,
    /// Kernel memory of the tool's BPF maps, bytes.
    pub map_bytes: u64,
    /// When the machine did not run the tool.
    pub starved: Starved,
    /// What `--max-overhead` took.
    pub budget: Option<Summary>,
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

    /// What an object's programs and the tool have cost so far. `trap_ns`: what each run of a program on functions of programs
    /// costs beside it.
    pub fn spent(&self, object: &Object, trap_ns: u64) -> Spent {
        // Iterators run in the tool's own time.
        let by_events = object
            .progs()
            .filter(|program| !program.section().to_string_lossy().starts_with("iter/"));
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

    /// As [`Self::read`], of a collection that may have had a budget.
    pub fn read_within(&self, object: &Object, budget: Option<Summary>) -> Cost {
        Cost {
            budget,
            ..self.read(object)
        }
    }

    /// Whether the kernel measures BPF programs.
    pub fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// Reads the figures of an object's programs and maps.
    pub fn read(&self, object: &Object) -> Cost {
        let mut cost = Cost {
            own_cpu_ns: own_cpu_ns().saturating_sub(self.own_cpu_ns),
            wall_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            cpus: cpus_online(),
            peak_bytes: peak_bytes(),
            starved: scheduling::starved(),
            bpf_ns: self.is_measuring.then_some(0),
            ..Cost::default()
        };
        for program in object.progs() {
            let Some(info) = program_info(program.as_fd().as_raw_fd()) else {
                continue;
            };
            cost.runs += info.run_cnt;
            cost.recursions += info.recursion_misses;
            cost.bpf_ns = cost.bpf_ns.map(|sum| sum + info.run_time_ns);
        }
        cost.map_bytes = object
            .maps()
            .filter_map(|map| map_bytes(map.as_fd().as_raw_fd()))
            .sum();
        cost
    }
}

impl Cost {
    /// For the closing line.
    pub fn describe(&self) -> String {
        let machine_ns = (self.wall_ns * self.cpus).max(1) as f64;
        let share = |ns: u64| 100.0 * ns as f64 / machine_ns;
        let bpf = match self.bpf_ns {
            Some(ns) if self.runs > 0 => {
                format!("{} ns/run, BPF {:.2}% + ", ns / self.runs, share(ns))
            }
            Some(_) => String::new(),
            None => "BPF time not measured (BPF_ENABLE_STATS refused), ".into(),
        };
        format!(
            "cost {bpf}tool {:.2}% of {} CPUs, {} MB + {} MB maps",
            share(self.own_cpu_ns),
            self.cpus,
            self.peak_bytes.max(peak_bytes()) >> 20,
            self.map_bytes >> 20
        )
    }

    /// For JSON.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "bpf_runs": self.runs,
            "bpf_ns": self.bpf_ns,
            "own_cpu_ns": self.own_cpu_ns,
            "wall_ns": self.wall_ns,
            "cpus": self.cpus,
            "peak_bytes": self.peak_bytes.max(peak_bytes()),
            "map_bytes": self.map_bytes,
            "starved_ns": self.starved.ns,
        });
        if let Some(budget) = &self.budget {
            object["budget"] = budget.to_json();
        }
        object
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
    losses.count("nested", "events during our own work", skipped);
}

fn program_info(fd: RawFd) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of::<libbpf_sys::bpf_prog_info>()).expect("a small struct");
    // SAFETY: `info` is zeroed and `bytes` is its size.
    let status = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
    (status == 0).then_some(info)
}

fn map_bytes(fd: RawFd) -> Option<u64> {
    field(
        &fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?,
        "memlock:",
    )
}

fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmHWM:").unwrap_or(0) * 1024
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// CPU time of the tool, helpers included, ns.
pub(crate) fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) + helpers().cpu_ns()
}

/// Processes that work for the tool, and are not its `-- COMMAND`.
struct Helpers {
    alive: Vec<libc::pid_t>,
    /// CPU time of those that are gone.
    gone_ns: u64,
}

static HELPERS: Mutex<Helpers> = Mutex::new(Helpers {
    alive: Vec::new(),
    gone_ns: 0,
});

fn helpers() -> MutexGuard<'static, Helpers> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    fn cpu_ns(&self) -> u64 {
        self.gone_ns + self.alive.iter().map(|&pid| cpu_ns_of(pid)).sum::<u64>()
    }
}

/// From now on the CPU time of this child is the tool's own.
pub(crate) fn helper_began(pid: libc::pid_t) {
    helpers().alive.push(pid);
}

/// To be called while the child can still be asked, before it is reaped.
pub(crate) fn helper_ends(pid: libc::pid_t) {
    let mut helpers = helpers();
    helpers.alive.retain(|alive| *alive != pid);
    helpers.gone_ns += cpu_ns_of(pid);
}

/// CPU time of a process; 0 when there is no such one.
pub(crate) fn cpu_ns_of(pid: libc::pid_t) -> u64 {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid to write to.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => clock_ns(clock),
        _ => 0,
    }
}

/// CPUs that are online now.
pub fn cpus_online() -> u64 {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) })
        .unwrap_or(1)
        .max(1)
}
