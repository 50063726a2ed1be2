//! What is wrong with a file, and where.

use std::fmt::{self, Display, Formatter};
use std::io;

use crate::recording::LeftOut;
use crate::units::counted;

/// Why a file could not be read; one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    what: String,
    /// Counted from 1.
    line: Option<u64>,
    /// Of the uncompressed content, bytes.
    offset: Option<u64>,
}

impl ReadError {
    /// Wrong as a whole.
    pub(super) fn whole(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            line: None,
            offset: None,
        }
    }

    /// A format is known, but next to nothing can be read.
    pub(super) fn unreadable(format: &str, left_out: &LeftOut) -> Self {
        let lines = counted(left_out.malformed, "malformed lines");
        Self::whole(format!("is no {format}: {lines}; {}", left_out.first))
    }

    pub(super) fn at(what: impl Into<String>, offset: u64) -> Self {
        Self {
            offset: Some(offset),
            ..Self::whole(what)
        }
    }

    pub(super) fn at_line(what: impl Into<String>, line: u64, offset: u64) -> Self {
        Self {
            line: Some(line),
            ..Self::at(what, offset)
        }
    }

    pub(super) fn io(err: &io::Error, offset: u64) -> Self {
        let what = match err.kind() {
            io::ErrorKind::UnexpectedEof => "compressed data ends too early".into(),
            _ => err.to_string(),
        };
        Self::at(what, offset)
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.line, self.offset) {
            (Some(line), Some(offset)) => write!(f, "line {line} (byte {offset}): {}", self.what),
            (_, Some(offset)) => write!(f, "byte {offset}: {}", self.what),
            _ => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ReadError {}
