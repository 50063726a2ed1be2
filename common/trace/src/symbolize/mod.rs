//! Addresses → names.

mod beneath;
pub mod debug_files;
#[cfg(test)]
mod debug_files_tests;
pub mod elf;
#[cfg(test)]
mod elf_tests;
mod jit_table;
mod kallsyms;
pub mod kernel;
pub mod module;
pub mod own_frames;
#[cfg(test)]
mod own_frames_tests;
pub mod perf_map;
mod sections;
mod steady;
#[cfg(test)]
mod test_programs;
pub mod vdso;
