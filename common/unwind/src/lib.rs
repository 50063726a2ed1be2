//! Unwind tables for BPF programs, from the call frame information of ELF files.
//!
//! A compiler describes in `.eh_frame`, for every instruction, where the caller's stack pointer, frame pointer and
//! return address are: for exceptions, in nearly every file, with or without frame pointers. It does so as programs
//! for a small machine. Running them is no work for the kernel, so this crate runs all of them once ([`Image::table`]),
//! and what is left is a [`Table`] in which an address is found with a binary search over at most a thousand rows:
//!
//! - a [`Rule`], 8 bytes, says how to get from a frame to its caller. A file has a few hundred different ones, a
//!   whole system a few thousand;
//! - a row, 4 bytes, is the low 10 bits of an address and the index of the rule from there on;
//! - a [`Page`], 8 bytes for each KiB of text, says where its rows are and which rule reaches into it.
//!
//! The layouts are `repr(C)` or plain numbers and the same in BPF. What the rules cannot say becomes
//! [`Cfa::Unsupported`] and is counted ([`Counts`]); nothing is guessed.
//!
//! [`walk`] does in Rust what BPF does, for tests and for whoever has a copy of a stack.
//!
//! The file may belong to anyone. It is read with bounded reads and never mapped, all sizes in it have limits, and
//! what is broken is dropped or an [`Error`].
//!
//! The formats are those of the DWARF 5 standard, section 6.4, the Linux Standard Base's chapter on `.eh_frame`, and
//! the System V ABI for x86-64, and for aarch64 those that its folder names. That a few rules say nearly everything, and that a row can be small, was known from
//! parca-agent, lightswitch and OpenTelemetry's eBPF profiler; the two PLT expressions are in GNU binutils'
//! `elf64-x86-64.c`, the signal frame is the kernel's `struct rt_sigframe`. No code is theirs.

mod architecture;
mod cfi;
mod convert;
mod counts;
mod entries;
mod expression;
mod frame;
mod go;
mod header;
mod image;
mod key;
mod leaves;
mod machine;
mod plt;
mod rows;
mod rule;
mod rule_set;
mod sections;
mod table;
mod text;
mod walk;

pub use architecture::Architecture;
pub use counts::Counts;
pub use elf::{Error, Load};
pub use frame::{End, Frame};
pub use image::Image;
pub use rule::{Cfa, FpMode, Rule};
pub use rule_set::{MAX_RULES, RuleSet};
pub use table::{PAGE_BITS, Page, Table};
pub use walk::walk;
