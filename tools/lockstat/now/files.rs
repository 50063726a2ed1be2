//! Locks of files that threads wait for at one moment, and who has them: the kernel's own list, `/proc/locks`.

use std::collections::HashMap;

use host::file_locks::{self, FileLock, Sort, inode};
use profile::sums::groups;

use super::lock::{Holder, Identity, Told, Wait, Waited};
use super::thread::{Thread, Threads};
use crate::lockstat::futex::Class;

/// Numbers of the system calls, and of fcntl's commands that wait.
const FLOCK: i16 = libc::SYS_flock as i16;
const FCNTL: i16 = libc::SYS_fcntl as i16;
const POSIX_WAIT: u64 = libc::F_SETLKW as u64;
const OFD_WAIT: u64 = libc::F_OFD_SETLKW as u64;

/// A process that waits for a lock, by the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blocked {
    class: Class,
    /// `None`: a lock of an open file description names nobody.
    tgid: Option<u32>,
    /// Sort of the lock that is in its way, and whoever took it.
    by: (Class, Option<u32>),
    /// Device and inode, as the kernel writes them.
    file: String,
}

/// Processes that wait for locks of files, by their ID.
#[derive(Debug, Default)]
pub(super) struct FileLocks(HashMap<Option<u32>, Vec<Blocked>>);

impl FileLocks {
    /// Reads the list, if any of the threads waits for such a lock.
    pub(super) fn read(threads: &Threads) -> Self {
        let waits = |thread: &Thread| thread.is_asleep() && class_of(thread).is_some();
        match threads.all.iter().any(waits) {
            true => Self::of(parse(&file_locks::list())),
            false => Self::default(),
        }
    }

    fn of(list: Vec<Blocked>) -> Self {
        Self(groups(list.into_iter().map(|one| (one.tgid, one))))
    }

    /// The wait of the thread with this index; `None`: it waits for no lock of a file. The list lacks locks that are kept elsewhere (NFS,
    /// FUSE), and those whose holder another PID namespace hides.
    pub(super) fn wait(&self, threads: &Threads, index: usize) -> Option<Wait> {
        let thread = &threads.all[index];
        let class = class_of(thread)?;
        let (tgid, descriptor) = (thread.task.tgid, thread.arguments[0] as u32);
        let inode = inode(tgid, descriptor);
        let blocked = self.find(class, tgid, inode.as_deref()).flatten();
        let hidden = Identity::Hidden {
            waiter: index,
            space: thread.space,
        };
        Some(Wait {
            waiter: index,
            kind: Waited::Program(class),
            lock: blocked.map_or(hidden, |blocked| {
                Identity::File(class, blocked.file.clone(), blocked.by.1)
            }),
            name: file_locks::path(tgid, descriptor),
            holder: blocked.map_or(Holder::Unrecorded, |blocked| holder(threads, blocked.by)),
            timed: false,
            private: false,
            is_over: false,
            told: Told::default(),
        })
    }

    /// `None`: it is not in the list. `Some(None)`: nobody can tell which of several it is.
    fn find(&self, class: Class, tgid: u32, inode: Option<&str>) -> Option<Option<&Blocked>> {
        let is_it = |one: &&Blocked| {
            let is_there = inode.is_none_or(|inode| one.file.rsplit(':').next() == Some(inode));
            one.class == class && is_there
        };
        let listed = [Some(tgid), None].map(|tgid| self.0.get(&tgid));
        let listed = listed.into_iter().flatten().flatten();
        let mut found = listed.filter(is_it);
        let first = found.next()?;
        let is_same = |other: &Blocked| (&other.file, other.by) == (&first.file, first.by);
        Some(found.all(is_same).then_some(first))
    }
}

/// The sort of lock that a thread's call waits for.
fn class_of(thread: &Thread) -> Option<Class> {
    let command = thread.arguments[1] & u64::from(u32::MAX);
    match (thread.wait.syscall, command) {
        _ if thread.compat => None,
        (FLOCK, _) => Some(Class::Flock),
        (FCNTL, POSIX_WAIT) => Some(Class::Posix),
        (FCNTL, OFD_WAIT) => Some(Class::Ofd),
        _ => None,
    }
}

/// The process that took the lock. A POSIX lock is its process's alone; a file that was locked as a whole may have been handed on to a child,
/// and of several threads any may have it.
fn holder(threads: &Threads, (class, tgid): (Class, Option<u32>)) -> Holder {
    let Some(tgid) = tgid else {
        return Holder::Unrecorded;
    };
    let is_alone = threads.of_process(tgid) == 1;
    match threads.of_tid(tgid) {
        None => Holder::Unrecorded,
        Some(leader) if !is_alone => Holder::Process(leader),
        Some(leader) if threads.all[leader].is_dead() => Holder::Unrecorded,
        Some(leader) if class == Class::Posix => Holder::Thread(leader),
        Some(leader) => Holder::Perhaps(leader),
    }
}

/// Those of the list that wait, with what is in their way.
fn parse(text: &str) -> Vec<Blocked> {
    let mut by = None;
    let mut blocked = Vec::new();
    for lock in text.lines().map(FileLock::of) {
        let Some(class) = lock.sort.map(class) else {
            // Those that wait below are of another sort, too.
            by = by.filter(|_| lock.is_blocked);
            continue;
        };
        match (lock.is_blocked, by) {
            (false, _) => by = Some((class, lock.tgid)),
            (true, Some(by)) => blocked.push(Blocked {
                class,
                tgid: lock.tgid,
                by,
                file: lock.file.to_owned(),
            }),
            (true, None) => {}
        }
    }
    blocked
}

fn class(sort: Sort) -> Class {
    match sort {
        Sort::Flock => Class::Flock,
        Sort::Posix => Class::Posix,
        Sort::Ofd => Class::Ofd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1: FLOCK  ADVISORY  WRITE 10 fe:00:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF
1:  -> FLOCK  ADVISORY  READ 12 fe:00:77 0 EOF
2: LEASE  ACTIVE    READ 13 fe:00:78 0 EOF
2: -> LEASE  BREAKER   READ 14 fe:00:78 0 EOF
3: POSIX  ADVISORY  WRITE 13 fe:00:79 0 EOF
3: -> POSIX  ADVISORY  WRITE 11 fe:00:79 5 9
4: OFDLCK ADVISORY  WRITE -1 fe:00:80 0 EOF
4: -> OFDLCK ADVISORY  WRITE -1 fe:00:80 0 EOF
5: FLOCK  ADVISORY  WRITE 15 fe:00:81 0 EOF
5: -> FLOCK  ADVISORY  WRITE 12 fe:00:81 0 EOF
";

    /// A thread behind a waiter waits for the same holder.
    #[test]
    fn waiters_are_found_with_the_lock_in_their_way() {
        let locks = FileLocks::of(parse(LIST));
        let find = |class, tgid, inode| {
            let found = locks.find(class, tgid, inode);
            found.map(|found| found.map(|one| (one.by.1, &*one.file)))
        };
        let first = Some(Some((Some(10), "fe:00:77")));
        assert_eq!(find(Class::Flock, 11, None), first);
        assert_eq!(find(Class::Flock, 11, Some("77")), first);
        assert_eq!(find(Class::Flock, 11, Some("7")), None);
        let posix = Some(Some((Some(13), "fe:00:79")));
        assert_eq!(find(Class::Posix, 11, Some("79")), posix);
        assert_eq!(find(Class::Posix, 14, None), None, "a lease");
        let unnamed = Some(Some((None, "fe:00:80")));
        assert_eq!(find(Class::Ofd, 99, Some("80")), unnamed);
        // Two threads of a process, of which nobody knows which waits for which.
        assert_eq!(find(Class::Flock, 12, None), Some(None));
        let second = Some(Some((Some(15), "fe:00:81")));
        assert_eq!(find(Class::Flock, 12, Some("81")), second);
    }

    #[test]
    fn a_list_that_is_no_such_thing_says_nothing() {
        for text in [
            "",
            "1:",
            "1: FLOCK",
            "1: -> FLOCK ADVISORY WRITE 1 a:b:c",
            "\0\n:::\n",
        ] {
            assert_eq!(parse(text), []);
        }
    }
}
