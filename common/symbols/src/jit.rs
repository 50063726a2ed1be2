//! Perf maps of the processes seen: found in the target's mount namespace, under its innermost process ID.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use host::procs;

use crate::began::began;
use crate::files::{open_in_nofollow, open_root};
use crate::opener::{Facts, Opened};
use crate::perfmap::PerfMap;

/// node and the JVM write 1–20 MiB.
const MAX_BYTES: u64 = 256 << 20;
/// All maps together; one process must not cost the others theirs, so it is far above a map's size in practice.
const MAX_ALL_BYTES: u64 = 512 << 20;
/// Address spaces with code outside files.
const MAX_SPACES: usize = 65_536;
/// How often a map that is not there yet is looked for.
const RETRY: Duration = Duration::from_millis(100);
/// A growing map is read again after this many times the last reading's duration.
const PATIENCE: u32 = 10;

/// File systems stamp by a clock that is up to a tick late; the start of a process is given in hundredths of a second.
const CLOCKS_APART: Duration = Duration::from_millis(50);

/// One address space's perf map.
#[derive(Debug)]
struct Jit {
    tgid: u32,
    file: Option<File>,
    tried: Instant,
    /// Last try of [`Jits::find`], which does not wait for another's turn: a report may begin just behind a look in vain.
    looked: Option<Instant>,
    map: PerfMap,
    /// Size and modification time when last read.
    stamp: Option<(u64, i64, i64)>,
    next_read: Instant,
    /// Counted as such already.
    disbelieved: bool,
}

/// Perf maps by address space.
#[derive(Debug)]
pub(super) struct Jits {
    spaces: HashMap<u32, Jit>,
    open: usize,
    max_open: usize,
    /// Held in all maps.
    bytes: u64,
    /// Maps that were too long, or more than may be held open.
    pub(super) refused: u64,
    /// Maps that somebody else has written, or may have, or an earlier process of that ID.
    pub(super) disbelieved: u64,
}

/// Why there is no map.
#[derive(Debug)]
enum Missing {
    /// Not there, or not to be opened.
    Absent,
    /// There is one, but not of this process.
    Disbelieved,
}

impl From<io::Error> for Missing {
    fn from(_: io::Error) -> Self {
        Self::Absent
    }
}

impl From<io::ErrorKind> for Missing {
    fn from(_: io::ErrorKind) -> Self {
        Self::Absent
    }
}

impl Jits {
    pub(super) fn new(max_open: usize) -> Self {
        Self {
            spaces: HashMap::new(),
            open: 0,
            max_open,
            bytes: 0,
            refused: 0,
            disbelieved: 0,
        }
    }

    /// Opens the map of a process in whose anonymous memory code was seen at `time_ns`, so that it outlives the process.
    pub(super) fn see(&mut self, space: u32, tgid: u32, time_ns: u64) {
        let now = Instant::now();
        let mut before = false;
        match self.spaces.get(&space) {
            Some(jit) if jit.file.is_some() || now < jit.tried + RETRY => return,
            _ if self.open >= self.max_open => {
                self.refused += 1;
                return;
            }
            None if self.spaces.len() >= MAX_SPACES => {
                self.refused += 1;
                return;
            }
            Some(jit) => before = jit.disbelieved,
            None => {}
        }
        let opened = open(tgid, time_ns);
        let disbelieved = matches!(opened, Err(Missing::Disbelieved));
        self.disbelieved += u64::from(disbelieved && !before);
        let file = opened.ok();
        self.open += usize::from(file.is_some());
        let jit = Jit {
            tgid,
            file,
            tried: now,
            looked: None,
            map: PerfMap::default(),
            stamp: None,
            next_read: now,
            disbelieved: disbelieved || before,
        };
        self.spaces.insert(space, jit);
    }

    /// Name of the code at `address`, if the JIT compiler told. A map that came after the last stack was seen, as Java's
    /// does on demand, is found if `has` says that the process still has this address space.
    pub(super) fn find(
        &mut self,
        space: u32,
        address: u64,
        has: impl Fn(u32) -> bool,
    ) -> Option<String> {
        let jit = self.spaces.get_mut(&space)?;
        let now = Instant::now();
        let is_due = jit.looked.is_none_or(|looked| now >= looked + RETRY);
        if jit.file.is_none() && is_due && self.open < self.max_open {
            jit.looked = Some(now);
            jit.file = open(jit.tgid, u64::MAX).ok().filter(|_| has(jit.tgid));
            self.open += usize::from(jit.file.is_some());
        }
        let file = jit.file.as_mut()?;
        let metadata = file.metadata().ok()?;
        let stamp = Some((metadata.size(), metadata.mtime(), metadata.mtime_nsec()));
        if now >= jit.next_read && stamp != jit.stamp {
            jit.stamp = stamp;
            self.bytes -= jit.map.len();
            jit.map = PerfMap::default();
            let room = MAX_ALL_BYTES.saturating_sub(self.bytes);
            match read(file, MAX_BYTES.min(room)) {
                Ok(bytes) => {
                    jit.map = PerfMap::parse(bytes, room);
                    self.refused += u64::from(jit.map.is_cut());
                }
                Err(_) => self.refused += 1,
            }
            self.bytes += jit.map.len();
            jit.next_read = Instant::now() + now.elapsed() * PATIENCE;
        }
        jit.map.find(address)
    }
}

fn read(file: &mut File, limit: u64) -> io::Result<Vec<u8>> {
    if file.metadata()?.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.seek(SeekFrom::Start(0))?;
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(bytes)
    }
}

/// The map of the process that had this ID at `time_ns`.
fn open(tgid: u32, time_ns: u64) -> Result<File, Missing> {
    let (uid, pid) = identity(&procs::status(tgid)?).ok_or(io::ErrorKind::InvalidData)?;
    let root = open_root(&format!("/proc/{tgid}/root"))?;
    let path = format!("/tmp/perf-{pid}.map");
    let Opened { file, facts } = open_in_nofollow(root.as_fd(), path.as_bytes())?;
    // Anyone can leave a file of that name in /tmp.
    let trusted = [0, uid, fs::metadata(format!("/proc/{tgid}"))?.uid()];
    let is_theirs = trusted.contains(&facts.owner) && facts.mode & 0o002 == 0;
    // Read last: then all of this was about the process that began at that time.
    let began = began(tgid).ok_or(io::ErrorKind::InvalidData)?;
    if began.monotonic_ns > time_ns {
        return Err(Missing::Absent);
    }
    // A process of this ID that is gone may have left one.
    if is_theirs && is_since(&facts, began.wall) {
        Ok(file)
    } else {
        Err(Missing::Disbelieved)
    }
}

/// Whether it was written at that time or later; what lies beyond all clocks was not.
fn is_since(facts: &Facts, wall: SystemTime) -> bool {
    let modified = facts.modified_at();
    let latest = modified.and_then(|at| at.checked_add(CLOCKS_APART));
    latest.is_some_and(|at| at >= wall)
}

/// Effective user ID and innermost process ID out of `/proc/PID/status`.
fn identity(status: &str) -> Option<(u32, u32)> {
    let uid = procs::words(status, "Uid:")?.nth(1)?.parse().ok()?;
    let pid = procs::words(status, "NSpid:")?.last()?.parse().ok()?;
    Some((uid, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_pid_and_the_effective_uid() {
        let status = "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t17\t1\n";
        assert_eq!(identity(status), Some((0, 1)));
        assert_eq!(identity("Name:\tx\n"), None);
    }

    #[test]
    fn a_map_that_comes_just_behind_a_look_in_vain_is_found() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let mut jits = Jits::new(8);
        jits.see(1, pid, host::clock::monotonic_ns());
        fs::write(&path, "1000 100 late\n").expect("a map");
        let found = jits.find(1, 0x1050, |_| true);
        fs::remove_file(&path).expect("the map");
        assert_eq!(found.as_deref(), Some("late"));
    }

    #[test]
    fn a_file_is_refused_by_its_size_before_it_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        file.seek(SeekFrom::Start(7)).unwrap();
        let refused = read(&mut file, 1000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(file.stream_position().unwrap(), 7, "nothing was read");
        file.set_len(1000).unwrap();
        assert_eq!(read(&mut file, 1000).unwrap(), [0; 1000]);
    }

    #[test]
    fn times_that_owners_have_made_up() {
        let now = SystemTime::now();
        let is_since = |seconds, nanoseconds| {
            let modified = (seconds, nanoseconds);
            let facts = Facts {
                modified,
                ..Facts::default()
            };
            is_since(&facts, now)
        };
        assert!(!is_since(i64::MAX, 999_999_999), "no clock shows that");
        assert!(!is_since(i64::MAX, i64::MAX));
        assert!(!is_since(i64::MIN, i64::MIN) && !is_since(0, 0));
        assert!(is_since(i64::MAX, 0));
    }
}
