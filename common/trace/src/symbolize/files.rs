//! Opens files that other processes chose, without being harmed by what they are.
//!
//! Nothing is opened for reading before it is known to be a regular file, so no FIFO blocks and no device reacts; links
//! inside a container are followed inside it only.

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::probe::descriptors_allowed;

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
pub(super) fn open_in(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<(File, Metadata)> {
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    open_how(root, path, libc::O_PATH, resolve).and_then(reopen)
}

/// Like [`open_in`], for a file that must not be a symbolic link itself.
pub(super) fn open_in_nofollow(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<(File, Metadata)> {
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    open_how(root, path, libc::O_PATH | libc::O_NOFOLLOW, resolve).and_then(reopen)
}

/// Opens the file behind a mapping of a live process, wherever it is mounted and even when it is deleted.
pub(crate) fn open_mapped(tgid: u32, start: u64, end: u64) -> io::Result<(File, Metadata)> {
    let path = format!("/proc/{tgid}/map_files/{start:x}-{end:x}");
    let link = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    reopen(link.into())
}

/// The path under which the kernel gives an open file to anyone in this process.
pub(super) fn self_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// How many descriptors this process may have open; what is held of other processes is cut to fit.
pub(super) fn descriptor_limit() -> usize {
    usize::try_from(descriptors_allowed())
        .unwrap_or(usize::MAX)
        .clamp(256, 4096)
}

fn open_how(root: BorrowedFd<'_>, path: &[u8], flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    // SAFETY: open_how is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = resolve;
    // SAFETY: path and how live over the call, and the size is how's.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// From a handle that cannot read to one that can, if it is a regular file.
fn reopen(handle: OwnedFd) -> io::Result<(File, Metadata)> {
    let handle = File::from(handle);
    let metadata = handle.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(self_path(&handle.as_fd()))?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_and_no_way_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"x").unwrap();
        symlink("/file", dir.path().join("absolute")).unwrap();
        symlink("../../../../../../etc/passwd", dir.path().join("escape")).unwrap();
        let fifo = CString::new(dir.path().join("fifo").to_str().unwrap()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
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
