//! Opens files that other processes control: beneath a given root, regular files only.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What to do about a symbolic link as the last component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Follow it, within the root.
    Follow,
    /// Fail.
    Refuse,
}

/// Opens a directory as a root for [`open`].
pub(crate) fn root(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(path)
}

/// Opens the regular file `path` for reading, as if `root` were `/`.
///
/// Whatever lies at `path` is looked at before it is opened: opening a FIFO waits and opening a device has effects.
pub(crate) fn open(root: &File, path: &Path, links: Links) -> io::Result<File> {
    let found = look_up(root, path, links)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path_of(&found))
}

/// A path by which this process reaches an open file, whatever became of its name.
pub(crate) fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn look_up(root: &File, path: &Path, links: Links) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let no_follow = match links {
        Links::Follow => 0,
        Links::Refuse => libc::O_NOFOLLOW,
    };
    let flags = libc::O_PATH | libc::O_CLOEXEC | no_follow;
    // SAFETY: `open_how` is plain integers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::try_from(flags).map_err(io::Error::other)?;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: The path is a C string and `how` is as large as is said; both outlive the call.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The kernel just made this descriptor and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn stays_within_the_root_and_opens_only_regular_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("inside"), "inside").unwrap();
        symlink("/inside", directory.path().join("absolute")).unwrap();
        symlink("/etc/passwd", directory.path().join("escape")).unwrap();
        let fifo = CString::new(directory.path().join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: `fifo` is a C string.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let root = root(directory.path()).unwrap();
        let open = |path: &str, links| open(&root, Path::new(path), links);
        assert!(open("/inside", Links::Follow).is_ok());
        assert!(open("../../inside", Links::Follow).is_ok());
        assert!(open("absolute", Links::Follow).is_ok());
        assert!(open("absolute", Links::Refuse).is_err());
        assert!(open("escape", Links::Follow).is_err());
        assert!(open("fifo", Links::Follow).is_err());
    }
}
