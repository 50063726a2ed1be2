//! offcputime: where threads wait, why, and who woke them.

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

fn main() -> ExitCode {
    session::main::<Args>()
}

impl Tool for Args {
    type Engine<'a> = Offcputime<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Offcputime<'a>> {
        Offcputime::load(self, setup)
    }
}
