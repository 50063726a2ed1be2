//! profile: where CPU time goes, or any other event.

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

fn main() -> ExitCode {
    session::main::<Args>()
}

impl Tool for Args {
    type Engine<'a> = Profiling<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Profiling<'a>> {
        Profiling::load(self, setup)
    }
}
