//! Reasons for which a file is not read.

use std::fmt;
use std::io;

/// Reasons for which a file is not read.
#[derive(Debug)]
pub enum Error {
    /// Reading failed.
    Io(io::Error),
    /// Not an ELF file.
    NotElf,
    /// An ELF file, but not of 64-bit x86.
    OtherMachine,
    /// The named part contradicts itself or the file's length.
    Malformed(&'static str),
    /// The named part is larger than any real file's.
    TooLarge(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotElf => f.write_str("not an ELF file"),
            Self::OtherMachine => f.write_str("not an ELF file for 64-bit x86 or Arm"),
            Self::Malformed(part) => write!(f, "malformed {part}"),
            Self::TooLarge(part) => write!(f, "{part}: larger than supported"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
