//! Addresses → names.

mod beneath;
pub mod debug_files;
pub mod elf;
mod jit_table;
mod kallsyms;
pub mod kernel;
pub mod module;
pub mod own_frames;
pub mod perf_map;
mod sections;
pub mod vdso;
