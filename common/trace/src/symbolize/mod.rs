//! Addresses → names, also for processes that have exited, other mount namespaces and deleted files.
//!
//! Two steps: [`Symbolizer::locate`] ties a user address to its file when the stack is first seen, while the process can
//! still be asked; [`Symbolizer::user`] names it when a report needs it.

mod beneath;
mod debug_files;
#[cfg(test)]
mod debug_files_tests;
mod elf;
#[cfg(test)]
mod elf_tests;
mod jit_table;
mod kallsyms;
mod kernel;
mod module;
mod modules;
mod own_frames;
#[cfg(test)]
mod own_frames_tests;
mod perf_map;
mod sections;
mod steady;
mod symbolizer;
#[cfg(test)]
mod test_programs;
mod vdso;

pub use module::{Location, Module, ModuleId};
pub use own_frames::{Origin, interrupt_part};
pub use symbolizer::Symbolizer;
