//! Databases of SQLite that others wait for, and who has them locked: SQLite tries again by the clock, so nobody ends such a wait, and
//! the kernel's list at the window's end is all that tells.

use std::collections::HashMap;
use std::fs;

use host::file_locks::{self, FileLock, Sort};
use host::task::comm_of;
use profile::escape::terminal;
use profile::text::cut_start;
use serde_json::{Value, json};

use crate::why::line::{Line, Locked};
use crate::why::words::program;

/// First bytes that a writer locks: PENDING_BYTE, RESERVED_BYTE and SHARED_FIRST of <https://www.sqlite.org/src/file?name=src/os.h>, and
/// the WRITE, CKPT and RECOVER locks of an index of a log (<https://www.sqlite.org/walformat.html#locks>).
const WRITERS: [u64; 6] = [0x4000_0000, 0x4000_0001, 0x4000_0002, 120, 121, 122];
/// End of such an index's name.
const INDEX: &str = "-shm";
/// Descriptors of a process that are looked at.
const MOST_FILES: usize = 4_096;
/// Processes that wait, whose files are looked at.
const MOST_WAITERS: usize = 16;
/// Columns of a path.
const PATH: usize = 40;

impl Locked {
    /// `writer 12 had …/shop.db locked at the end`
    pub(crate) fn sentence(&self) -> String {
        let path = cut_start(&terminal(&self.path), PATH);
        match self.is_own {
            true => format!("another connection of the same process had {path} locked at the end"),
            false => format!("{} had {path} locked at the end", program(&self.by)),
        }
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "comm": &*self.by.0, "pid": self.by.1, "file": self.path })
    }
}

/// Looks who has the databases locked that lines wait for, at this instant.
pub(crate) fn look(lines: &mut [Line]) {
    if !lines.iter().any(|line| line.is_retried) {
        return;
    }
    let list = file_locks::list();
    let holders = holders(&list);
    for line in lines.iter_mut().filter(|line| line.is_retried) {
        let waiters = line.whose.iter().take(MOST_WAITERS);
        line.locked = waiters
            .filter_map(|((_, pid), _)| locked(*pid, &holders))
            .next();
    }
}

/// Processes that write to a database, by its inode.
fn holders(list: &str) -> HashMap<&str, u32> {
    let locks = list.lines().map(FileLock::of);
    let writers = locks.filter(|lock| {
        let is_held = lock.sort == Some(Sort::Posix) && !lock.is_blocked;
        is_held && lock.is_exclusive && WRITERS.contains(&lock.begin)
    });
    writers
        .filter_map(|lock| Some((lock.inode(), lock.tgid?)))
        .collect()
}

/// The first of a process's open files that is such a database.
fn locked(waiter: u32, holders: &HashMap<&str, u32>) -> Option<Locked> {
    if holders.is_empty() {
        return None;
    }
    let files = fs::read_dir(format!("/proc/{waiter}/fd")).ok()?;
    let names = files.flatten().take(MOST_FILES);
    let descriptors = names.filter_map(|file| file.file_name().to_str()?.parse().ok());
    let mut found = descriptors.filter_map(|descriptor: u32| {
        let holder = *holders.get(&*file_locks::inode(waiter, descriptor)?)?;
        let path = file_locks::path(waiter, descriptor);
        let path = path.strip_suffix(INDEX).unwrap_or(&path).to_owned();
        let by = (comm_of(holder).unwrap_or_default(), holder);
        let is_own = holder == waiter;
        Some(Locked { by, path, is_own })
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_to_a_database_has_it_locked() {
        let list = "\
1: POSIX  ADVISORY  WRITE 10 fe:00:77 1073741825 1073741825
1: -> POSIX  ADVISORY  WRITE 11 fe:00:77 1073741825 1073741825
2: POSIX  ADVISORY  READ 12 fe:00:78 1073741826 1073742335
3: POSIX  ADVISORY  WRITE 13 fe:00:79 120 120
4: FLOCK  ADVISORY  WRITE 14 fe:00:80 0 EOF
5: POSIX  ADVISORY  WRITE 15 fe:00:81 0 EOF
";
        assert_eq!(holders(list), HashMap::from([("77", 10), ("79", 13)]));
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
            text.starts_with("another connection of the same process had …"),
            "{text}"
        );
    }
}
