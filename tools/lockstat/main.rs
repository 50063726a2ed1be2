//! lockstat: which locks make threads wait, for how long, and who holds them.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use session::Options;
use session::program;

pub(crate) use answer::noun;
pub(crate) use args::Args;
pub(crate) use engine::Lockstat;
pub(crate) use part::{Contended, Found, Waited};
#[cfg(test)]
pub(crate) use row::tests::row as example_row;
pub(crate) use row::{For, HolderKind, Identity, LockRow, Side};
pub(crate) use table::{by_thread, by_whom, class, doing, label};

mod answer;
#[cfg(test)]
mod answer_tests;
mod args;
mod came_last;
mod engine;
mod futex;
mod gils;
mod harvest;
mod headline;
mod hotspot;
mod java;
mod json;
mod kernel;
mod known;
mod left_out;
mod losses;
mod meanwhile;
mod merge;
mod names;
mod next;
mod now;
mod part;
mod postgres;
mod report;
mod row;
mod runtimes;
mod setup;
mod stacks;
mod table;
#[cfg(test)]
mod table_tests;
mod turns;
mod user;
mod waits;

/// The question that it answers.
pub const QUESTION: &str = "Which locks make threads wait, for how long, and who holds them?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    program::main(Args::NAME, line, || match Args::parse_from(line) {
        args if args.now => now::run(&args),
        args => session::run(args),
    })
}
