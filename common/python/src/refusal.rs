//! Reasons for which an interpreter is left alone.

use std::fmt;

use crate::memory::Unread;
use crate::version::Version;

/// Reasons for which an interpreter is left alone. Its frames stay native.
#[derive(Debug)]
pub enum Refusal {
    /// The binary does not say which version it is.
    NoVersion,
    /// Nothing is known of this version.
    UnknownVersion(Version),
    /// A build without the global lock, whose objects are others.
    FreeThreaded(Version),
    /// The binary does not have this symbol.
    NoSymbol(&'static str),
    /// The interpreter tells another offset than its version has.
    OtherBuild {
        /// Its version.
        version: Version,
        /// The field, or what else differs.
        field: &'static str,
    },
    /// The interpreter has not begun, or has ended.
    NotRunning,
    /// No thread has its state where it should be.
    NoThread,
    /// The thread's storage that the state would be in is not where it can be found.
    Key(u32),
    /// The named thing cannot be read.
    Unread(&'static str, Unread),
}

impl Refusal {
    /// Tells if it is of use to look again later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotRunning | Self::NoThread)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVersion => f.write_str("the interpreter does not say its version"),
            Self::UnknownVersion(version) => write!(f, "Python {version} is not known"),
            Self::FreeThreaded(version) => {
                write!(f, "Python {version} without the global lock is not known")
            }
            Self::NoSymbol(name) => write!(f, "the interpreter has no symbol {name}"),
            Self::OtherBuild { version, field } => {
                write!(f, "an unknown build of Python {version}: {field} differs")
            }
            Self::NotRunning => f.write_str("the interpreter is not running"),
            Self::NoThread => f.write_str("no thread has its state where it should be"),
            Self::Key(key) => write!(f, "thread states have the key {key}, beyond the first 32"),
            Self::Unread(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}
