//! pressure: which resource is short right now, and which tasks lose by it or cause it.

use std::ffi::OsString;
use std::process::ExitCode;

use session::Options;
use session::program;

use args::Args;

mod args;
mod armed;
mod calls;
mod capture;
mod captures;
mod cgroup_table;
mod cgroups;
mod ended;
mod engine;
mod harvest;
mod hints;
mod interval;
mod json;
mod look;
mod parties;
mod psi;
mod ranking;
mod report;
mod rounds;
mod sections;
mod stacks;
mod task;
mod trigger;
mod urgency;
mod victims;
mod waits;

/// The question that it answers.
pub const QUESTION: &str = "Which resource is short right now, who loses, who causes it?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    program::main(Args::NAME, line, || {
        captures::run(Args::from_command_line(line)?)
    })
}
