//! Unwind tables against gimli's evaluation, readelf, libgcc's unwinder, and files that lie. No root needed.

#![allow(clippy::print_stderr, reason = "tests print")]
#![allow(clippy::unwrap_used, reason = "a test ends where its setup fails")]

mod fake;
mod go;
mod hostile;
mod leaves;
mod live;
mod machine;
mod oracle;
mod process;
mod readelf;
mod sources;
#[cfg(target_arch = "x86_64")]
mod steps;
mod tables;
