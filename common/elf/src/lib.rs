//! Bounded reading of ELF files: segments, build IDs, debug links, functions, their callers and parts, variables, Go's function table.
//!
//! A file may belong to anyone. It is read in pieces and never mapped, all sizes in it have limits, and what is broken is
//! left out or an [`Error`]. The caller opens files and decides which of them to trust.

mod callers;
mod compressed;
mod demangle;
mod error;
mod function;
pub mod go;
mod headers;
mod load;
mod minidebug;
mod needed;
mod parts;
mod readable;
mod source;
mod symbols;
mod variables;

pub use callers::callers;
pub use compressed::{inflate, inflate_gnu};
pub use demangle::demangled;
pub use error::Error;
pub use function::{function_names, function_offsets};
pub use headers::{Dynamic, GoMarks, Headers, build_id_in_notes, is_elf};
pub use load::{Load, page};
pub use minidebug::unpacks_within;
pub use needed::needed;
pub use parts::parts;
pub use source::{Limits, Pieces, Source, read};
pub use symbols::{Symbol, dynamic_symbols, symbols};
pub use variables::{Found, Variables};

/// Longest name of a function, bytes: C++ names of heavy templates reach 10 KiB; a file may claim megabytes.
pub const MAX_NAME: usize = 16 << 10;

#[cfg(test)]
mod damage;
