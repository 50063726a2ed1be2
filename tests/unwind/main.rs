//! Unwind tables against gimli's evaluation, readelf, libgcc's unwinder, and files that lie. No root needed.

#![allow(clippy::unwrap_used, reason = "a test ends where its setup fails")]

mod live;
mod oracle;
mod process;
mod readelf;
mod steps;
mod tables;
