//! Options of a run of any tool.

use budget::Budget;

use crate::options::Common;
use crate::output::OutputFile;
use crate::schedule::Schedule;
use crate::targets::Targets;

/// Options that mean the same in every tool.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Words, formats, strictness.
    pub common: &'a Common,
    /// Tasks to look at.
    pub targets: &'a Targets,
    /// `--max-overhead`.
    pub budget: &'a Budget,
    /// Times of its reports and of its end.
    pub schedule: Schedule,
    /// `-o FILE`.
    pub outputs: &'a [OutputFile],
}

impl<'a> Asked<'a> {
    /// Options of a tool that writes no files.
    pub fn new(
        targets: &'a Targets,
        schedule: impl Into<Schedule>,
        budget: &'a Budget,
        common: &'a Common,
    ) -> Self {
        Self {
            common,
            targets,
            budget,
            schedule: schedule.into(),
            outputs: &[],
        }
    }
}
