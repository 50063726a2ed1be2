//! syscount: which system calls take the time, and fail.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use session::{Setup, Tool};

use args::Args;
use engine::Syscount;

mod answer;
mod args;
mod engine;
mod harvest;
mod interval;
mod names;
mod report;
#[cfg(test)]
mod report_tests;

/// The question that it answers.
pub const QUESTION: &str = "Which system calls take the time, and fail?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}

impl Tool for Args {
    type Engine<'a> = Syscount<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Syscount<'a>> {
        Syscount::load(self, setup)
    }
}
