//! Tests on the live kernel: the tools against programs with known answers and the kernel's own accounts.

mod bad_days;
mod c_program;
mod containers;
mod cpu_quota;
mod endings;
mod events;
mod harness;
mod kernel;
mod offcputime;
mod older_kernels;
mod own_cgroup;
mod pressure;
mod pressure_triggers;
#[path = "profile.rs"]
mod profile_tool;
mod runqlat;
mod shortages;
mod slow_disk;
mod small_memory;
mod symbols;
mod targets;
mod tool;
mod traps;
mod workload;

use std::path::{Path, PathBuf};

/// A program of the same build: the tools, and the workloads beside them.
pub(crate) fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_offcputime")).with_file_name(name)
}
