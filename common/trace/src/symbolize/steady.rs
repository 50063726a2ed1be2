//! Files whose contents stay what they are while they are mapped.
//!
//! Reading a mapped file that its owner truncates kills the reader by SIGBUS. Files that only root can write are
//! taken to be replaced, not truncated; others are copied.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

/// The largest file copied.
const MAX_BYTES: u64 = 1 << 30;
/// All copies together: they stay in memory.
const MAX_TOTAL_BYTES: u64 = 4 << 30;

/// Makes files steady, within a bound of memory.
#[derive(Debug)]
pub(crate) struct Steady {
    left: u64,
    refused: u64,
}

impl Default for Steady {
    fn default() -> Self {
        Self {
            left: MAX_TOTAL_BYTES,
            refused: 0,
        }
    }
}

impl Steady {
    /// The file itself or a copy of it; `None` when it is too large to copy.
    pub(crate) fn file(&mut self, file: File) -> Option<File> {
        let metadata = file.metadata().ok()?;
        if is_roots_own(&file) || is_sealed(&file) {
            return Some(file);
        }
        let size = metadata.len();
        if size > MAX_BYTES.min(self.left) {
            self.refused += 1;
            return None;
        }
        self.left -= size;
        copy(&file, size).ok()
    }

    /// Files that were too large.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

/// Whether nobody but our root user can write the file.
pub(crate) fn is_roots_own(file: &File) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.uid() == 0 && metadata.mode() & 0o022 == 0)
}

/// A new file in memory without a name.
pub(crate) fn in_memory() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: The name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"usekit".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The kernel just made this descriptor and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

fn is_sealed(file: &File) -> bool {
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE;
    // SAFETY: F_GET_SEALS takes no argument; on files without seals it fails.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & needed == needed
}

fn copy(mut file: &File, size: u64) -> io::Result<File> {
    let mut to = in_memory()?;
    // A duplicate descriptor shares its position with the original.
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file.take(size), &mut to)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    fn set_mode(file: &File, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        file.set_permissions(permissions).unwrap();
    }

    #[test]
    fn a_copy_outlives_truncation() {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), "contents").unwrap();
        set_mode(named.as_file(), 0o666);
        let mut steady = Steady::default();
        let copy = steady.file(named.reopen().unwrap()).unwrap();
        named.as_file().set_len(0).unwrap();
        let mut text = [0; 8];
        copy.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"contents");
        named.as_file().set_len(MAX_BYTES + 1).unwrap();
        assert!(steady.file(named.reopen().unwrap()).is_none());
        assert_eq!(steady.refused(), 1);
    }

    #[test]
    fn roots_own_files_are_not_copied() {
        let named = tempfile::NamedTempFile::new().unwrap();
        set_mode(named.as_file(), 0o644);
        let inode = named.as_file().metadata().unwrap().ino();
        let steady = Steady::default().file(named.reopen().unwrap()).unwrap();
        let same = steady.metadata().unwrap().ino() == inode;
        assert_eq!(same, is_roots_own(named.as_file()));
    }
}
