//! profile: where CPU time goes, or any other event.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use session::{Setup, Tool};

use args::Args;
use engine::Profiling;

mod args;
mod attach;
mod busy;
mod counters;
mod engine;
mod event;
mod harvest;
mod moments;
mod report;
mod sampled;
mod traps;

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}

impl Tool for Args {
    type Engine<'a> = Profiling<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Profiling<'a>> {
        Profiling::load(self, setup)
    }
}
