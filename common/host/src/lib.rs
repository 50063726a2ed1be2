//! This machine and this process: clocks, `/proc`, descriptors, capabilities, scheduling, signals, children. It knows no BPF.

pub mod clock;
pub mod cpu_time;
pub mod descriptors;
pub mod errands;
pub mod file_locks;
pub mod forked;
pub mod libraries;
mod machine;
pub mod paths;
pub mod perf;
pub mod privileges;
pub mod procs;
pub mod remedies;
pub mod scheduling;
pub mod semaphores;
pub mod sharing;
pub mod signals;
pub mod task;
pub mod utilisation;
pub mod waits;

pub use machine::{CompatCall, ELF_MACHINE, KERNEL_IMAGE, WALKS_PYTHON, code_mask};
