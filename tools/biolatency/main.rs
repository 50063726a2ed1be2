//! biolatency: how long block I/O takes, queued and in the device; how busy disks are; what failed.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use session::{Setup, Tool};

pub(crate) use args::{Args, Phase};
pub(crate) use engine::Biolatency;
pub(crate) use part::{PHASES, Share};

mod answer;
mod args;
mod completions;
mod disk_use;
mod disks;
mod engine;
mod harvest;
mod json;
mod labels;
mod latencies;
mod names;
mod part;
mod report;
mod slow;

/// The question that it answers.
pub const QUESTION: &str = "How long does block I/O take; how busy is the disk; what failed?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}

impl Tool for Args {
    type Engine<'a> = Biolatency<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Biolatency<'a>> {
        Biolatency::load(self, setup)
    }
}
