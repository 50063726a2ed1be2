//! Python's frames, read out of an interpreter that runs without any flag: where its thread states lie, which code they are in, what that
//! code is called.
//!
//! Nothing here looks at processes by itself: who uses it says how memory is read ([`Memory`]) and what is mapped ([`Process`]). All that
//! is read may be anything: it is bounded, and what contradicts itself is a [`Refusal`] or [`Unread`].

mod binary;
mod code;
mod debug;
mod gil;
mod layout;
mod lines;
mod members;
mod memory;
mod module;
mod objects;
mod refusal;
mod runtime;
mod text;
mod version;
mod walk;
mod within;

pub use binary::Binary;
pub use code::{CHECKSUM_BITS, CHECKSUM_BYTES, Code, checksum};
pub use gil::Gil;
pub use layout::{Entries, Instruction, Layout, NONE, Positions};
pub use lines::Lines;
pub use memory::{Memory, Unread};
pub use module::module;
pub use refusal::Refusal;
pub use runtime::{Mapping, Process, Runtime, Thread};
pub use version::Version;
pub use walk::{End, Frame, Stack, walk};
pub use within::Within;

#[cfg(test)]
mod crafted;
#[cfg(test)]
mod fake;
