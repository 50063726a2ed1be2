//! Ends of runs that did not fail.

/// End of a run that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Done,
    /// Something was lost and `--strict` was given: exit status 3.
    Lossy,
    /// Exit status of `-- COMMAND`.
    Command(u8),
}

impl Outcome {
    /// Of the same run around a command that ended with `status`. A failure of the command is its own affair, which
    /// scripts act upon: losses show in the status of successful ones only.
    pub(crate) fn after_command(self, status: u8) -> Self {
        match (self, status) {
            (Self::Lossy, 0) => Self::Lossy,
            _ => Self::Command(status),
        }
    }
}
