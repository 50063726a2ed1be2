//! What every process has mapped executable, and since when.
//!
//! Two sources feed it: `/proc/PID/maps` for processes that ran before the tracer, and the kernel's perf side-band
//! stream for everything that happens afterwards, so that a process that lived for 5 ms is known as exactly as a daemon.

mod events;
pub(crate) mod maps;
mod paths;
mod process;
mod processes;
mod record;
mod ring;
mod sideband;
mod table;

use std::sync::Arc;

pub(crate) use processes::Processes;

/// The file behind a mapping, as the kernel's VMA names it (not always what `stat` says: overlayfs, btrfs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
}

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Backing {
    File(FileKey),
    Vdso,
    /// Anonymous memory, stacks, heaps and everything else without a file.
    Anonymous,
}

/// One executable range of an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    /// First address behind the mapping.
    pub(crate) end: u64,
    /// File offset of `start`.
    pub(crate) offset: u64,
    pub(crate) backing: Backing,
    /// As the kernel printed it, ` (deleted)` included; not UTF-8.
    pub(crate) path: Arc<[u8]>,
    /// CLOCK_MONOTONIC; 0 when it was there before anyone looked.
    pub(crate) from_ns: u64,
    /// `u64::MAX` while it is there.
    pub(crate) until_ns: u64,
}

impl Mapping {
    /// File offset of an address inside the mapping.
    pub(crate) fn file_offset(&self, address: u64) -> u64 {
        (address.wrapping_sub(self.start)).wrapping_add(self.offset)
    }

    fn covers(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    fn same_content(&self, other: &Self) -> bool {
        self.backing == other.backing
            && self.offset.wrapping_sub(self.start) == other.offset.wrapping_sub(other.start)
            && self.path == other.path
    }
}

/// Sorts a kernel-printed name into a [`Backing`].
fn backing_of(path: &[u8], key: FileKey) -> Backing {
    match path {
        b"[vdso]" => Backing::Vdso,
        // A path with inode 0 is a name without a file (`//anon`, `/dev/zero` of old kernels).
        [b'/', ..] if key.inode != 0 => Backing::File(key),
        _ => Backing::Anonymous,
    }
}

/// Bytes of our own executable mapping that starts at `start`.
pub(crate) fn mapped_size(start: u64) -> std::io::Result<u64> {
    let own = maps::read(std::process::id())?;
    let found = own
        .iter()
        .find(|m| m.start == start)
        .map(|m| m.end - m.start);
    found.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}
