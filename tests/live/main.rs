//! Tests on the live kernel: the tools against programs with known answers and the kernel's own accounts.

mod bad_days;
mod biolatency;
mod biolatency_devices;
mod biolatency_groups;
mod c_program;
mod call_shares;
mod chains;
mod chains_c;
mod chains_languages;
mod chains_loads;
mod containers;
mod cpu_quota;
mod disk;
mod elf_entry;
mod endings;
mod events;
mod harness;
mod interpreters;
mod kernel;
mod kernel_stacks;
mod offcputime;
mod older_kernels;
mod outputs;
mod own_cgroup;
mod perf_dwarf;
mod pressure;
mod pressure_triggers;
#[path = "profile.rs"]
mod profile_tool;
mod real_program;
mod runqlat;
mod shortages;
mod slow_disk;
mod small_memory;
mod symbols;
mod targets;
mod tool;
mod traced;
mod traps;
mod unwind_life;
mod unwind_modes;
mod unwind_real;
mod workload;

use std::path::{Path, PathBuf};

/// A program of the same build: the tools, and the workloads beside them.
pub(crate) fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_offcputime")).with_file_name(name)
}
