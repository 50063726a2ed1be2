//! flame: reads, draws, compares, merges and gates profiles.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::Args;

mod args;
mod complaint;
mod convert;
mod diff;
mod draw;
mod filter;
mod gate;
mod heat;
mod input;
mod merge;
mod next;
mod output;
mod peek;
mod terminal;
mod top;

/// The question that it answers.
pub const QUESTION: &str = "What does a profile say, what changed, and did it get worse?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    match Args::parse_from(line).run() {
        Ok(status) => status,
        // head has read enough.
        Err(err) if complaint::is_closed_pipe(&err) => ExitCode::SUCCESS,
        Err(err) => {
            profile::say!("flame: {}", complaint::line(&err));
            ExitCode::FAILURE
        }
    }
}
