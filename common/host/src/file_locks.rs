//! Locks of files, by the kernel's list, `/proc/locks`: `1: POSIX  ADVISORY  WRITE 12 fe:00:34 0 EOF`, with `->` in front of the sort where
//! somebody waits for the lock above.

use std::fs::{self, File};
use std::io::Read;

/// Bytes of the list that are read: some 300,000 locks.
const MOST: u64 = 16 << 20;
/// Bytes that are read of a descriptor's description.
const FDINFO: u64 = 512;

/// A sort of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// flock(2)
    Flock,
    /// A process's: fcntl(2), lockf(3).
    Posix,
    /// An open file description's: fcntl(2).
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
    value(&fdinfo(tgid, descriptor)?, "ino:").map(str::to_owned)
}

/// Device and inode behind a process's descriptor, as the list has them; `None`: the same, or `mounts` is not that process's
/// `mountinfo`.
pub fn file(tgid: u32, descriptor: u32, mounts: &str) -> Option<String> {
    let text = fdinfo(tgid, descriptor)?;
    let (mount, inode) = (value(&text, "mnt_id:")?, value(&text, "ino:")?);
    let mut lines = mounts.lines().map(|line| line.split(' '));
    let words = lines.find_map(|mut words| (words.next() == Some(mount)).then_some(words));
    let (major, minor) = words?.nth(1)?.split_once(':')?;
    let [major, minor] = [major, minor].map(|number| number.parse::<u32>().ok());
    Some(format!("{:02x}:{:02x}:{inode}", major?, minor?))
}

/// The first lines of what the kernel says of a descriptor: some are followed by lists of any length.
fn fdinfo(tgid: u32, descriptor: u32) -> Option<String> {
    let file = File::open(format!("/proc/{tgid}/fdinfo/{descriptor}")).ok()?;
    let mut text = String::new();
    file.take(FDINFO).read_to_string(&mut text).ok()?;
    Some(text)
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
    values.next().map(str::trim)
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
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

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

    #[test]
    fn a_file_is_known_by_its_device_and_inode() {
        let file = tempfile::tempfile().expect("a file");
        let metadata = file.metadata().expect("its data");
        let (device, inode) = (metadata.dev(), metadata.ino());
        let expected = format!(
            "{:02x}:{:02x}:{inode}",
            libc::major(device),
            libc::minor(device)
        );
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let found = super::file(std::process::id(), file.as_raw_fd() as u32, &mounts);
        assert_eq!(found, Some(expected));
    }
}
