//! Locks of files, by the kernel's list, `/proc/locks`: `1: POSIX  ADVISORY  WRITE 12 fe:00:34 0 EOF`, with `->` in front of the sort where
//! somebody waits for the lock above.

use std::fs::{self, File};
use std::io::Read;

/// Bytes of the list that are read: some 300,000 locks.
const MOST: u64 = 16 << 20;

/// A sort of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// Of flock(2).
    Flock,
    /// Of a process: fcntl(2), lockf(3).
    Posix,
    /// Of an open file description: fcntl(2).
    Ofd,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLock<'a> {
    /// It waits for the last one above that does not.
    pub is_blocked: bool,
    /// `None`: a lease, or no line of the list.
    pub sort: Option<Sort>,
    /// Nobody else may have one of the same bytes.
    pub is_exclusive: bool,
    /// The process that has it, or asks for it; `None`: an open file description's, or a process that this PID namespace hides.
    pub tgid: Option<u32>,
    /// Device and inode, as the kernel writes them.
    pub file: &'a str,
    /// Its first byte.
    pub begin: u64,
}

impl<'a> FileLock<'a> {
    /// Reads a line.
    pub fn of(line: &'a str) -> Self {
        let mut words = line.split_whitespace().skip(1).peekable();
        let is_blocked = words.next_if_eq(&"->").is_some();
        let sort = match words.next() {
            Some("FLOCK") => Some(Sort::Flock),
            Some("POSIX") => Some(Sort::Posix),
            Some("OFDLCK") => Some(Sort::Ofd),
            _ => None,
        };
        let is_exclusive = words.nth(1) == Some("WRITE");
        let tgid = words.next().and_then(|word| word.parse().ok());
        let file = words.next();
        let begin = words.next().and_then(|word| word.parse().ok());
        Self {
            is_blocked,
            sort: sort.filter(|_| file.is_some()),
            is_exclusive,
            tgid: tgid.filter(|tgid| *tgid > 0),
            file: file.unwrap_or_default(),
            begin: begin.unwrap_or(0),
        }
    }

    /// The file's inode, as the kernel writes it.
    pub fn inode(&self) -> &'a str {
        self.file.rsplit(':').next().unwrap_or_default()
    }
}

/// Text of the list, as far as it can be read; what is too long ends with a whole line.
pub fn list() -> String {
    let mut text = String::new();
    if let Ok(file) = File::open("/proc/locks") {
        // All that was read before a failure is right, but for a line that was cut.
        drop(file.take(MOST).read_to_string(&mut text));
        text.truncate(text.rfind('\n').unwrap_or(0));
    }
    text
}

/// The inode behind a process's descriptor, as the kernel writes it since Linux 5.14; asking for it does not touch the file system.
pub fn inode(tgid: u32, descriptor: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{tgid}/fdinfo/{descriptor}")).ok()?;
    let mut values = text.lines().filter_map(|line| line.strip_prefix("ino:"));
    values.next().map(|value| value.trim().to_owned())
}

/// The path of a process's descriptor, which the kernel knows by itself; empty: there is none.
pub fn path(tgid: u32, descriptor: u32) -> String {
    let path = fs::read_link(format!("/proc/{tgid}/fd/{descriptor}"));
    path.map_or_else(
        |_| String::new(),
        |path| path.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let lock = FileLock::of("3: POSIX  ADVISORY  WRITE 13 fe:00:79 1073741825 1073741825");
        let expected = FileLock {
            is_blocked: false,
            sort: Some(Sort::Posix),
            is_exclusive: true,
            tgid: Some(13),
            file: "fe:00:79",
            begin: 0x4000_0001,
        };
        assert_eq!(lock, expected);
        assert_eq!(lock.inode(), "79");
        let lock = FileLock::of("4:  -> OFDLCK ADVISORY  READ -1 fe:00:80 0 EOF");
        assert_eq!((lock.is_blocked, lock.sort), (true, Some(Sort::Ofd)));
        assert_eq!((lock.is_exclusive, lock.tgid), (false, None));
    }

    #[test]
    fn what_is_no_lock_has_no_sort() {
        for line in [
            "",
            "1:",
            "1: FLOCK",
            "1: -> LEASE ACTIVE READ 1 a:b:c",
            "\0",
        ] {
            assert_eq!(FileLock::of(line).sort, None, "{line:?}");
        }
    }
}
