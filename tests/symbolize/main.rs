//! Names of addresses held to programs that know their own: each prints where it is, the tracer must say what that is.

#![allow(clippy::print_stderr, reason = "tests print")]
#![allow(clippy::unwrap_used, reason = "a test ends where its setup fails")]

mod debuginfo;
mod elf;
mod files;
mod go;
mod hostile;
mod jit;
mod kernel;
mod short;
mod target;
