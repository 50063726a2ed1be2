//! runqlat: how long runnable threads wait for a CPU, and behind whom.

use std::process::ExitCode;

use anyhow::Result;
use session::{Setup, Tool};

use args::Args;
use engine::Runqlat;

mod args;
mod engine;
mod harvest;
mod report;
mod slow;
mod windows;

fn main() -> ExitCode {
    session::main::<Args>()
}

impl Tool for Args {
    type Engine<'a> = Runqlat<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Runqlat<'a>> {
        Runqlat::load(self, setup)
    }
}
