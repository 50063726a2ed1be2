//! Who is in a PostgreSQL process's way: the server's own table of heavyweight locks, in the memory that its processes share.
//!
//! Nobody says where a process's structure (PGPROC) has what: that differs between releases and builds. The structures of locks have been
//! the same since 9.6, and point at each other, so that they are found by that: two pointers to a lock and to the process's part in it,
//! which points back at both, in front of the wait event, and the lock is of the kind that the event says. What does not fit says nothing.

use std::collections::HashSet;
use std::fmt;

/// Reads that many bytes at an address, or says that it could not.
pub(crate) type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Bytes in front of the wait event that a process's structure may begin in; release 15 has 800.
const BEFORE: usize = 2048;
/// Processes that have, or wait for, one lock.
const MOST: usize = 4096;
/// Highest mode of a lock.
const MODES: u32 = 8;

/// LOCK: tag, masks, processes that have or want it, those that wait.
const LOCK_BYTES: usize = 56;
const LOCK_PROCLOCKS: u64 = 24;
const LOCK_WAITERS: u64 = 40;
/// PROCLOCK: lock, process, leader of its group, masks of what it has, links to the lock's others.
const PROCLOCK_BYTES: usize = 48;
const PROCLOCK_LINK: u64 = 32;
/// Links: the previous, the next.
const NEXT: usize = 8;
/// In PGPROC behind the pointer to the lock: to the process's part in it, the mode, what is held, since when.
const WAIT_BYTES: usize = 32;
const WAIT_MODE: usize = 16;
const WAIT_START: usize = 24;

/// Modes that a mode, from 1 on, conflicts with: `LockConflicts` of the server, the same for all its kinds of locks.
const CONFLICTS: [u32; 9] = [
    0,
    1 << 8,
    1 << 7 | 1 << 8,
    1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
    1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8,
];

/// Which lock of a server's: `LOCKTAG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    fields: [u32; 3],
    last: u16,
    kind: u8,
}

impl Tag {
    fn of(bytes: &[u8]) -> Self {
        Self {
            fields: [0, 4, 8].map(|at| u32_at(bytes, at)),
            last: u16::from_ne_bytes([bytes[12], bytes[13]]),
            kind: bytes[14],
        }
    }
}

/// The wait event's name, and which of that kind, in words of the server's own messages.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([first, second, third], last) = (self.fields, self.last);
        match self.kind {
            0 => write!(f, "relation {second} of database {first}"),
            1 => write!(f, "extend of relation {second} of database {first}"),
            3 => write!(f, "page {third} of relation {second}"),
            4 => write!(f, "tuple ({third},{last}) of relation {second}"),
            5 => write!(f, "transactionid {first}"),
            6 => write!(f, "virtualxid {first}/{second}"),
            8 => write!(f, "object {third} of class {second}"),
            10 => write!(f, "advisory [{first},{second},{third},{last}]"),
            kind => write!(f, "type {kind}"),
        }
    }
}

/// A process's wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) tag: Tag,
    /// When it began, µs since 2000; 0: not said.
    pub(crate) since_us: i64,
    /// Processes that have it in a mode that is in the way, then those that wait in front for such a mode; by PID, leaders for their
    /// parallel workers.
    pub(crate) hard: Vec<u32>,
    pub(crate) soft: Vec<u32>,
}

/// Looks what a process waits for, and behind whom. `event_at`: where it has its wait event; `kind`: of the lock, by that; `pid`: as the
/// process knows its own.
pub(crate) fn blocked(event_at: u64, kind: u8, pid: u32, read: Read<'_>) -> Option<Blocked> {
    let window_at = (event_at & !7).checked_sub(BEFORE as u64)?;
    let mut window = vec![0; BEFORE];
    read(window_at, &mut window).then_some(())?;
    let wait = find_wait((&window, window_at), kind, pid, read)?;
    let (hard, soft) = Table::of(&wait, read).in_the_way(&wait)?;
    Some(Blocked {
        tag: wait.tag,
        since_us: wait.since_us,
        hard,
        soft,
    })
}

/// What a process's structure says of its wait.
struct Wait {
    lock: u64,
    tag: Tag,
    mode: u32,
    since_us: i64,
    /// The structure, and how far behind its beginning it says so.
    process: u64,
    inside: u64,
    leader: u64,
    /// Offsets at which the process has its own PID, in front of that: its own, and that of who is to be woken.
    pids_at: Vec<u64>,
}

/// The only place with pointers to a lock of that kind and to the part in it of the process that the place is in. Structures of other
/// processes may lie in front: their PIDs are others.
fn find_wait(
    (window, window_at): (&[u8], u64),
    kind: u8,
    pid: u32,
    read: Read<'_>,
) -> Option<Wait> {
    let places = (0..window.len().saturating_sub(WAIT_BYTES)).step_by(8);
    let mut found = places.filter_map(|at| {
        let fields = &window[at..at + WAIT_BYTES];
        let (lock, part_at) = (u64_at(fields, 0), u64_at(fields, 8));
        let mode = u32_at(fields, WAIT_MODE);
        let is_wait = is_pointer(lock) && is_pointer(part_at) && (1..=MODES).contains(&mode);
        is_wait.then_some(())?;
        let part = Part::read(part_at, read)?;
        let place = window_at + at as u64;
        let is_inside = (window_at..place).contains(&part.process);
        (part.lock == lock && is_inside).then_some(())?;
        let mut bytes = [0; LOCK_BYTES];
        read(lock, &mut bytes).then_some(())?;
        let tag = Tag::of(&bytes);
        let begin = usize::try_from(part.process - window_at).ok()?;
        let pids_at = places_of(pid, window.get(begin..at)?);
        (tag.kind == kind && !pids_at.is_empty()).then(|| Wait {
            lock,
            tag,
            mode,
            since_us: i64::from_ne_bytes(u64_at(fields, WAIT_START).to_ne_bytes()),
            process: part.process,
            inside: place - part.process,
            leader: part.leader,
            pids_at,
        })
    });
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

/// Offsets of a word in bytes.
fn places_of(word: u32, bytes: &[u8]) -> Vec<u64> {
    let places = (0..bytes.len() / 4).map(|at| at * 4);
    let found = places.filter(|at| u32_at(bytes, *at) == word);
    found.map(|at| at as u64).collect()
}

/// A process's part in a lock: `PROCLOCK`.
struct Part {
    lock: u64,
    process: u64,
    leader: u64,
    has: u32,
    next: u64,
}

impl Part {
    fn read(at: u64, read: Read<'_>) -> Option<Self> {
        let mut bytes = [0; PROCLOCK_BYTES];
        (is_pointer(at) && read(at, &mut bytes)).then(|| Self {
            lock: u64_at(&bytes, 0),
            process: u64_at(&bytes, 8),
            leader: u64_at(&bytes, 16),
            has: u32_at(&bytes, 24),
            next: u64_at(&bytes, PROCLOCK_LINK as usize + NEXT),
        })
    }
}

/// How processes' structures are read.
struct Table<'a> {
    pids_at: &'a [u64],
    read: Read<'a>,
}

impl<'a> Table<'a> {
    fn of(wait: &'a Wait, read: Read<'a>) -> Self {
        Self {
            pids_at: &wait.pids_at,
            read,
        }
    }

    fn pointer(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read)(at, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    fn word(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read)(at, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// The PID that a structure says at all its places; `None`: they say different ones, or none, as that of a prepared transaction.
    fn pid(&self, process: u64) -> Option<u32> {
        let mut pids = self
            .pids_at
            .iter()
            .map(|at| self.word(process.checked_add(*at)?));
        let first = pids.next()??;
        (first > 0 && pids.all(|pid| pid == Some(first))).then_some(first)
    }

    /// Processes that wait in front, in the lock's queue; links are at the beginning of their structures.
    fn in_front(&self, wait: &Wait) -> Option<HashSet<u64>> {
        let head = wait.lock.checked_add(LOCK_WAITERS)?;
        let mut at = self.pointer(head + NEXT as u64)?;
        let mut front = HashSet::new();
        while at != wait.process {
            let is_new = at != head && front.len() < MOST && front.insert(at);
            (is_new && is_pointer(at)).then_some(())?;
            at = self.pointer(at + NEXT as u64)?;
        }
        Some(front)
    }

    /// Processes that have the lock in a mode that is in the way, and those that wait for one in front: as `pg_blocking_pids` has them.
    fn in_the_way(&self, wait: &Wait) -> Option<(Vec<u32>, Vec<u32>)> {
        let conflicts = CONFLICTS[wait.mode as usize];
        let front = self.in_front(wait)?;
        let head = wait.lock.checked_add(LOCK_PROCLOCKS)?;
        let mut link = self.pointer(head + NEXT as u64)?;
        let (mut hard, mut soft) = (Vec::new(), Vec::new());
        for _ in 0..MOST {
            if link == head {
                return Some((hard, soft));
            }
            let part = Part::read(link.checked_sub(PROCLOCK_LINK)?, self.read)?;
            (part.lock == wait.lock).then_some(())?;
            link = part.next;
            if part.leader == wait.leader {
                continue;
            }
            let wanted = front
                .contains(&part.process)
                .then(|| self.mode(part.process, wait))
                .flatten();
            let list = match () {
                () if part.has & conflicts != 0 => &mut hard,
                () if wanted.is_some_and(|mode| conflicts & 1 << mode != 0) => &mut soft,
                () => continue,
            };
            list.extend(self.pid(part.leader).filter(|pid| !list.contains(pid)));
        }
        None
    }

    /// The mode that another process waits for.
    fn mode(&self, process: u64, wait: &Wait) -> Option<u32> {
        let at = process.checked_add(wait.inside + WAIT_MODE as u64)?;
        self.word(at).filter(|mode| (1..=MODES).contains(mode))
    }
}

/// Looks whether it may be an address of a program's: structures lie at multiples of eight. Architecture: x86-64.
fn is_pointer(value: u64) -> bool {
    (4096..1 << 47).contains(&value) && value.is_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

#[cfg(test)]
#[path = "lock_table_tests.rs"]
mod tests;
