//! A range of an address space that holds code, and what is behind it.

use std::sync::Arc;

/// The file behind a mapping, as the kernel's VMA names it (not always what `stat` says: overlayfs, btrfs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The device's major number.
    pub major: u32,
    /// The device's minor number.
    pub minor: u32,
    /// The file's number on that device.
    pub inode: u64,
}

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file.
    File(FileKey),
    /// Code that the kernel maps into every process.
    Vdso,
    /// Anonymous memory, stacks, heaps and everything else without a file.
    Anonymous,
}

/// One executable range of an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
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

    pub(super) fn covers(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    pub(super) fn same_content(&self, other: &Self) -> bool {
        self.backing == other.backing
            && self.offset.wrapping_sub(self.start) == other.offset.wrapping_sub(other.start)
            && self.path == other.path
    }
}

/// Sorts a kernel-printed name into a [`Backing`].
pub(super) fn backing_of(path: &[u8], key: FileKey) -> Backing {
    match path {
        b"[vdso]" => Backing::Vdso,
        // A path with inode 0 is a name without a file (`//anon`, `/dev/zero` of old kernels).
        [b'/', ..] if key.inode != 0 => Backing::File(key),
        _ => Backing::Anonymous,
    }
}
