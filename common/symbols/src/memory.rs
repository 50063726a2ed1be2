//! Other processes' memory.

use std::io;

use foreign::pages;

use crate::mappings::{Backing, FileKey, maps};

/// A file behind memory: the same one for all processes that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File(FileKey);

/// A range of addresses whose memory others may see, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// The first one.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// `None`: the kernel does not say.
    pub file: Option<File>,
}

/// What process `tgid` shares with whoever else has it mapped.
///
/// # Errors
///
/// When the process is gone, or may not be looked at.
pub fn shared(tgid: u32) -> io::Result<Vec<SharedRange>> {
    let mappings = maps::all(tgid)?;
    if mappings.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let shared = mappings.into_iter().filter(|(_, is_shared)| *is_shared);
    let ranges = shared.map(|(mapping, _)| SharedRange {
        start: mapping.start,
        end: mapping.end,
        file: match mapping.backing {
            Backing::File(key) => Some(File(key)),
            Backing::Vdso | Backing::Anonymous => None,
        },
    });
    Ok(ranges.collect())
}

/// Reads into `buffer`, of at most 4096 bytes, what process `tgid` has at `address`; returns how many bytes there were.
///
/// # Errors
///
/// When the process is gone, may not be read, or has nothing there; when its memory does not answer, now or before.
pub fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    pages::read(tgid, address, buffer)
}
