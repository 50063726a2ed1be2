//! Tests on the live kernel: the tools against programs with known answers and the kernel's own accounts.

#![allow(clippy::print_stderr, reason = "tests print")]

mod args;
mod beside;
mod biolatency;
mod biolatency_devices;
mod biolatency_groups;
mod biolatency_logged;
mod bound;
mod budget;
mod budget_detail;
mod budget_events;
mod c_program;
mod call_shares;
mod cgroup;
#[cfg(target_arch = "aarch64")]
mod counters;

mod disk;
mod elf_entry;
mod found;
mod full_pipe;
mod harness;
mod held;
mod kernel;
mod kernel_stacks;
mod limit;
mod lines;
mod lockstat_fights;
mod lockstat_handed_over;
mod lockstat_kernel;
mod lockstat_mariadb;
mod lockstat_now_kernel;
mod lockstat_periods;
mod lockstat_played;
mod lockstat_postgres;
mod lockstat_python;
mod lockstat_storms;
mod lockstat_wait_events;
mod mariadb;
mod moments;
mod neighbours;
mod off_cpu;
mod offcputime;
mod older_kernels;
mod overload;

mod perf_dwarf;
mod postgres;
mod prelude;
mod pressure;
mod pressure_triggers;
mod pressure_waits;
#[path = "profile.rs"]
mod profile_tool;
mod psi;
mod real_program;
mod run_queue;
mod runqlat;
mod shortages;

mod soak;
mod soak_loads;
mod stressors;
mod supervised;
mod targets;
mod targets_cgroup;
mod ticks;
mod together;
mod tool;
#[path = "../tools.rs"]
mod tools;
mod traced;
mod traps;
mod trio;
mod why;
mod why_chosen;
mod why_cycles;
mod why_epolls;
mod why_hung;
mod why_locks;
mod why_marks;
mod why_memory;
mod why_moments;
mod why_planted;
mod why_processes;
mod why_real;
mod why_windows;
mod word;
mod workload;

use std::path::{Path, PathBuf};

/// A program of the same build: the tools, and the workloads beside them.
pub(crate) fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_offcputime")).with_file_name(name)
}
