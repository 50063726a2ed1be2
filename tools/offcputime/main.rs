//! offcputime: where threads wait, why, and who woke them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use session::{Setup, Tool};

use args::Args;
use engine::Offcputime;

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

impl Tool for Args {
    type Engine<'a> = Offcputime<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Offcputime<'a>> {
        Offcputime::load(self, setup)
    }
}
