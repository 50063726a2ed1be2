//! why: where all of a program's time went, in one table, and who is to blame for it.

use std::ffi::OsString;
use std::process::ExitCode;

use args::Args;

mod account;
mod args;
mod beside;
mod chains;
mod chosen;
mod cycles;
mod cycles_json;
mod cycles_text;
mod databases;
mod disk_users;
mod disks;
mod draft;
mod drafts;
mod enders;
mod endpoints;
mod engine;
mod json;
mod kinds;
mod line;
mod lock;
mod locks;
mod next;
mod order;
mod page;
mod parts;
mod ran;
mod remarks;
mod report;
mod sentences;
mod strips;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod turns;
mod wall;
mod words;

/// The question that it answers.
pub const QUESTION: &str = "What costs a program its time, and who causes it?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}
