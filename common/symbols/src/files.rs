//! Opens files that other processes chose, without being harmed by what they are.
//!
//! Nothing is opened for reading before it is known to be a regular file, so no FIFO blocks and no device reacts; links
//! inside a container are followed inside it only; file systems that do not answer are left to `opener`.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::opener::{Opened, Wanted, open};

/// Opens a directory as a root to look in; works without any permission on the directory itself.
pub(super) fn open_root(path: &str) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    Ok(OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?
        .into())
}

/// Opens a regular file by its path inside `root`, with symbolic links taken relative to `root`.
pub(super) fn open_in(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Opened> {
    open(&Wanted {
        root: Some(root),
        path,
        follow: true,
    })
}

/// Like [`open_in`], for a file that must not be a symbolic link itself.
pub(super) fn open_in_nofollow(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Opened> {
    open(&Wanted {
        root: Some(root),
        path,
        follow: false,
    })
}

/// Opens the file behind a mapping of a live process, wherever it is mounted and even when it is deleted.
pub(crate) fn open_mapped(tgid: u32, start: u64, end: u64) -> io::Result<Opened> {
    let path = format!("/proc/{tgid}/map_files/{start:x}-{end:x}");
    open(&Wanted {
        root: None,
        path: path.as_bytes(),
        follow: true,
    })
}

/// The beginning, of at most `most` bytes, of a regular file that links of `/proc` lead to.
///
/// # Errors
///
/// Those of opening and reading it; `TimedOut` when its file system does not answer.
pub fn beginning(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let opened = open(&Wanted {
        root: None,
        path: path.as_bytes(),
        follow: true,
    })?;
    let mut bytes = Vec::new();
    opened.file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn only_regular_files_and_no_way_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"x").unwrap();
        symlink("/file", dir.path().join("absolute")).unwrap();
        symlink("../../../../../../etc/passwd", dir.path().join("escape")).unwrap();
        let fifo = dir.path().join("fifo");
        mkfifoat(CWD, fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let root = open_root(dir.path().to_str().unwrap()).unwrap();
        assert!(open_in(root.as_fd(), b"/file").is_ok());
        assert!(open_in(root.as_fd(), b"/absolute").is_ok());
        assert!(open_in_nofollow(root.as_fd(), b"/absolute").is_err());
        assert!(open_in(root.as_fd(), b"/escape").is_err());
        assert!(open_in(root.as_fd(), b"/fifo").is_err());
        assert!(open_in(root.as_fd(), b"/").is_err());
        assert!(open_in(root.as_fd(), b"/a\0b").is_err());
    }
}
