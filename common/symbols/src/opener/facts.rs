//! What a file is, as the opening process saw it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Statx, StatxFlags, makedev, statx};
use serde::{Deserialize, Serialize};

/// What was known of a file when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Facts {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Seconds and ns since 1970.
    pub(crate) modified: (i64, i64),
    pub(crate) owner: u32,
    pub(crate) mode: u32,
    /// The kind of file system, as `statfs` has it.
    pub(crate) file_system: i64,
    /// What is open is a copy.
    pub(crate) copied: bool,
}

impl Facts {
    /// On the clock of files; before 1970 is 1970. `None` is no time that a clock could show: owners set what they like.
    pub(crate) fn modified_at(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.modified;
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let rest = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
        UNIX_EPOCH.checked_add(seconds)?.checked_add(rest)
    }
}

/// What the kernel knows of a file without asking anybody.
pub(crate) fn known_of(file: impl AsFd, wanted: StatxFlags) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(statx(file, c"", flags, wanted)?)
}

/// Device and inode, as far as the kernel knows them by itself.
pub(super) fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let info = known_of(file, StatxFlags::INO)?;
    let device = makedev(info.stx_dev_major, info.stx_dev_minor);
    Ok((device, info.stx_ino))
}
