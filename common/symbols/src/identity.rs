//! Whether a file found by name is the one that is mapped, and still the one that was opened.

use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{StatxFlags, makedev};

use crate::mappings::FileKey;
use crate::opener::{Facts, known_of};

/// Their inode numbers and devices differ between `stat` and the mapping.
const OVERLAYFS: i64 = 0x794c_7630;
const BTRFS: i64 = 0x9123_683e;

/// Identity and state of a file at the time it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    owner: u32,
}

impl Stamp {
    /// User ID of the owner.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }
}

impl From<&Metadata> for Stamp {
    fn from(m: &Metadata) -> Self {
        Self {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
            owner: m.uid(),
        }
    }
}

impl From<&Facts> for Stamp {
    fn from(facts: &Facts) -> Self {
        Self {
            device: facts.device,
            inode: facts.inode,
            size: facts.size,
            modified: facts.modified,
            owner: facts.owner,
        }
    }
}

/// Which root directory this is, as a view of all that is mounted below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RootKey {
    device: (u32, u32),
    inode: u64,
    /// Mount namespaces begin as copies: the same directory, but another mount with other mounts in it.
    mount: u64,
}

impl RootKey {
    pub(super) fn of(root: &OwnedFd) -> Option<Self> {
        let info = known_of(root, StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
        Some(Self {
            device: (info.stx_dev_major, info.stx_dev_minor),
            inode: info.stx_ino,
            mount: info.stx_mnt_id,
        })
    }
}

/// Whether a file found by path is the mapped one. `own_view`: it was looked up as the mapping process sees it, so that a
/// file system which numbers its files differently for `stat` may be believed.
pub(super) fn matches(facts: &Facts, key: FileKey, own_view: bool) -> bool {
    let device = makedev(key.major, key.minor);
    if facts.inode == key.inode && facts.device == device {
        return true;
    }
    match facts.file_system {
        BTRFS => facts.inode == key.inode,
        OVERLAYFS => own_view,
        _ => false,
    }
}

/// The path of a file that may have been deleted since.
pub(super) fn undeleted(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// Names of memory that has an inode all the same; believed only until the file is open.
pub(super) fn is_shared_memory(path: &[u8]) -> bool {
    [
        &b"/memfd:"[..],
        b"/SYSV",
        b"/dev/zero",
        b"/anon_hugepage",
        b"/dev/shm/",
    ]
    .iter()
    .any(|prefix| path.starts_with(prefix))
}
