//! profile: where CPU time goes, or any other event.

use std::ffi::OsString;
use std::process::ExitCode;

pub use args::Args;
pub use engine::Profiling;
pub use harvest::{Estimates, Harvest, Row, Totals};
pub(crate) use moments::Single;

mod answer;
mod args;
mod attach;
mod busy;
mod counters;
mod engine;
mod event;
mod harvest;
mod moments;
mod quota;
mod report;
mod sampled;
mod traps;

/// The question that it answers.
pub const QUESTION: &str = "Where does CPU time go?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}
