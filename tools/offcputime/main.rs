//! offcputime: where threads wait, why, and who woke them.

use std::ffi::OsString;
use std::process::ExitCode;

use args::Args;

mod args;
mod engine;
mod harvest;
mod idle;
mod losses;
mod report;
mod sampled;

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}
