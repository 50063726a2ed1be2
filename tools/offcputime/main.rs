//! offcputime: where threads wait, why, and who woke them.

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use answer::{SLEEP, THROTTLED, for_what};
pub use args::Args;
pub use details::{Details, Lengths, ProcessTime};
pub use endpoints::Endpoint;
pub use engine::Offcputime;
pub(crate) use gil::GIL;
pub use harvest::{Accounting, Estimates, Harvest};
pub(crate) use idle::is_in_go;
pub use losses::Lost;
pub(crate) use next::DATABASE_LOCK;
pub use row::Row;

mod answer;
mod args;
pub(crate) mod cycles;
mod details;
mod endpoints;
mod engine;
mod gil;
mod harvest;
mod idle;
mod java;
mod losses;
pub(crate) mod marks;
mod next;
pub(crate) mod on_cpu;
mod open;
pub(crate) mod pieces;
mod polls;
mod quota;
mod report;
mod row;
mod sampled;
mod sqlite;
mod told;

/// The question that it answers.
pub const QUESTION: &str = "Where do threads wait, why, and who woke them?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    session::main::<Args>(line)
}
