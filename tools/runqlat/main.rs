//! runqlat: how long runnable threads wait for a CPU, and behind whom.

use std::ffi::OsString;
use std::process::ExitCode;

pub use args::Args;
pub use engine::Runqlat;
pub use harvest::{Culprit, Interval, OpenWait, WithoutQuota};

mod answer;
mod args;
mod engine;
mod harvest;
mod quota;
mod report;
#[cfg(test)]
mod report_tests;
mod slow;
mod windows;

/// The question that it answers.
pub const QUESTION: &str = "How long do runnable threads wait for a CPU, and behind whom?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}
