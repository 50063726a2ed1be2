//! Databases of SQLite that others wait for, and who has them locked: SQLite tries again by the clock, so nobody ends such a wait, and
//! the kernel's list of locks is all that tells.

use std::collections::HashMap;
use std::fs;

use host::file_locks::{self, FileLock, Sort};
use host::task::comm_of;
use profile::escape::terminal;
use profile::sums::groups;
use profile::text::cut_start;
use serde_json::{Value, json};

use crate::why::line::{Line, Locked};
use crate::why::words::program;

/// First bytes that a writer locks: PENDING_BYTE, RESERVED_BYTE and SHARED_FIRST of <https://www.sqlite.org/src/file?name=src/os.h>, and
/// the WRITE, CKPT and RECOVER locks of an index of a log (<https://www.sqlite.org/walformat.html#locks>); the more likely in the way,
/// the earlier.
const WRITERS: [u64; 6] = [0x4000_0002, 0x4000_0000, 0x4000_0001, 120, 121, 122];
/// Those that a reader locks, in whose way a writer comes when it commits, or puts the log into the database.
const READERS: [u64; 6] = [0x4000_0002, 123, 124, 125, 126, 127];
/// End of such an index's name.
const INDEX: &str = "-shm";
/// Descriptors of a process that are looked at.
const MOST_FILES: usize = 4_096;
/// Processes that wait, whose files are looked at.
const MOST_WAITERS: usize = 16;
/// Columns of a path.
const PATH: usize = 32;

impl Locked {
    /// `writer 12 had …/shop.db locked at the end`
    pub(crate) fn sentence(&self) -> String {
        let path = cut_start(&terminal(&self.path), PATH);
        match self.is_own {
            true => format!("another connection of its own had {path} locked at the end"),
            false => format!("{} had {path} locked at the end", program(&self.by)),
        }
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "comm": &*self.by.0, "pid": self.by.1, "file": self.path, "own": self.is_own })
    }
}

/// Looks who has the databases locked that lines wait for, by the kernel's list.
pub(crate) fn look(lines: &mut [Line], list: &str) {
    if !lines.iter().any(|line| line.is_retried) {
        return;
    }
    let holders = holders(list);
    let mut known: HashMap<u32, Option<Locked>> = HashMap::new();
    for line in lines.iter_mut().filter(|line| line.is_retried) {
        // One of several that has the database now waited for another a moment ago.
        let is_only = line.whose.len() == 1;
        let mut waiters = line.whose.iter().take(MOST_WAITERS);
        line.locked = waiters.find_map(|((_, pid), _)| {
            let locked = known.entry(*pid);
            let locked = locked.or_insert_with(|| locked_for(*pid, &holders));
            locked.clone().filter(|locked| is_only || !locked.is_own)
        });
    }
}

/// A lock of a database's: order among those that may be in the way, and its process.
type Held = (usize, u32);

/// Locks of databases, by their files.
fn holders(list: &str) -> HashMap<&str, Vec<Held>> {
    let locks = list.lines().map(FileLock::of);
    let held = locks.filter(|lock| lock.sort == Some(Sort::Posix) && !lock.is_blocked);
    let ranked = held.filter_map(|lock| {
        let (bytes, before) = match lock.is_exclusive {
            true => (WRITERS, 0),
            false => (READERS, WRITERS.len()),
        };
        let at = bytes.iter().position(|byte| *byte == lock.begin)?;
        Some((lock.file, (before + at, lock.tgid?)))
    });
    groups(ranked)
}

/// The lock that is most likely in a process's way: another's before its own, for of those it knows by itself.
fn locked_for(waiter: u32, holders: &HashMap<&str, Vec<Held>>) -> Option<Locked> {
    if holders.is_empty() {
        return None;
    }
    let mounts = fs::read_to_string(format!("/proc/{waiter}/mountinfo")).ok()?;
    let files = fs::read_dir(format!("/proc/{waiter}/fd")).ok()?;
    let names = files.flatten().take(MOST_FILES);
    let descriptors = names.filter_map(|file| file.file_name().to_str()?.parse().ok());
    let databases = descriptors.filter_map(|descriptor: u32| {
        let path = file_locks::path(waiter, descriptor);
        let file = path.starts_with('/');
        let file = file.then(|| file_locks::file(waiter, descriptor, &mounts))?;
        let held = holders.get(&*file?)?;
        let most_likely = held
            .iter()
            .map(|(order, tgid)| (*tgid == waiter, *order, *tgid));
        Some((most_likely.min()?, path))
    });
    let ((is_own, _, holder), path) = databases.min()?;
    Some(Locked {
        by: (comm_of(holder).unwrap_or_default(), holder),
        path: path.strip_suffix(INDEX).unwrap_or(&path).to_owned(),
        is_own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_databases_are_known_by_their_bytes() {
        let list = "\
1: POSIX  ADVISORY  WRITE 10 fe:00:77 1073741825 1073741825
1: -> POSIX  ADVISORY  WRITE 11 fe:00:77 1073741825 1073741825
2: POSIX  ADVISORY  READ 12 fe:00:78 1073741826 1073742335
3: POSIX  ADVISORY  WRITE 13 fe:00:79 120 120
4: FLOCK  ADVISORY  WRITE 14 fe:00:80 0 EOF
5: POSIX  ADVISORY  WRITE 15 fe:00:81 0 EOF
";
        let expected = [
            ("fe:00:77", vec![(2, 10)]),
            ("fe:00:78", vec![(6, 12)]),
            ("fe:00:79", vec![(3, 13)]),
        ];
        assert_eq!(holders(list), HashMap::from(expected));
    }

    #[test]
    fn words_name_the_process_and_the_end_of_a_path() {
        let mut locked = Locked {
            by: ("writer".into(), 12),
            path: format!("/{}shop.db\u{1b}", "directory/".repeat(9)),
            is_own: false,
        };
        let text = locked.sentence();
        assert!(text.starts_with("writer 12 had …"), "{text}");
        assert!(text.ends_with("/shop.db\\x1b locked at the end"), "{text}");
        locked.is_own = true;
        let text = locked.sentence();
        assert!(
            text.starts_with("another connection of its own had …"),
            "{text}"
        );
    }
}
