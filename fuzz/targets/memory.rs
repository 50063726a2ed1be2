//! Files that are nowhere else.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

/// A file of these bytes.
pub(crate) fn file(bytes: &[u8]) -> File {
    // SAFETY: a valid C string; the result is checked and nobody else's.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"fuzz".as_ptr(), 0);
        assert!(fd >= 0, "a file in memory");
        File::from_raw_fd(fd)
    };
    file.write_all(bytes).expect("memory");
    file
}
