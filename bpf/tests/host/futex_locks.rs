//! Locks of programs: words of a page, in which some libraries note who has the lock.

use std::ptr;

use crate::calling::Pointer;

/// `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`
pub(crate) const PI_WAITS: [u8; 2] = [6, 13];
/// Operations of our own for calls besides futex(2), and what is behind them, begin here.
pub(crate) const FUTEX2: u8 = 64;
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const PAGE: usize = 4096;
/// `enum holder_place`
const IN_WORD: u64 = 1;
const OF_MUTEX: u64 = 2;
const OF_PHASE: u64 = 3;
const OF_WRITERS: u64 = 4;
pub(crate) const JOINED: u64 = 5;
/// Bits of glibc's mutexes and rwlocks.
const MUTEX_KINDS: u32 = 0x3f3;
const ROBUST: u32 = 0x10;
const RWLOCK_FLAGS: u32 = 0x00ff_0103;

/// Kinds of locks, and what only looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// glibc's mutex: 2, a count, the owner, how many use it, its kind.
    Mutex,
    /// One that nobody uses, or too many for any machine.
    Unused,
    Crowded,
    /// One of a kind that does not exist.
    Odd,
    /// One of which the first word is readable, and then the page ends.
    Torn,
    /// The owner is in the word, with a bit for waiters: glibc's robust mutex, and what lacks one of its signs.
    Robust,
    Inheriting,
    Disagreeing,
    /// glibc's rwlock, waited for at its second or third word.
    Phase,
    Writers,
    /// A word that is the number of a thread until that ends.
    Joined,
    /// The same of 32-bit programs.
    CompatMutex,
    CompatRobust,
    CompatPhase,
    CompatWriters,
}

const KINDS: [Kind; 17] = [
    Kind::CompatMutex,
    Kind::CompatRobust,
    Kind::CompatPhase,
    Kind::CompatWriters,
    Kind::Plain,
    Kind::Mutex,
    Kind::Joined,
    Kind::Robust,
    Kind::Phase,
    Kind::Writers,
    Kind::Inheriting,
    Kind::Mutex,
    Kind::Unused,
    Kind::Crowded,
    Kind::Odd,
    Kind::Torn,
    Kind::Disagreeing,
];

pub(crate) struct Lock {
    word: *mut u32,
    kind: Kind,
    /// It lies in memory that processes share.
    pub(crate) is_shared: bool,
    words: [u32; 8],
}

impl Lock {
    /// One in a page of its own; which kind of lock is up to `pick`.
    pub(crate) fn new(page: Pointer, pick: usize, is_shared: bool) -> Self {
        let kind = KINDS[pick % KINDS.len()];
        let offset = match kind {
            Kind::Torn => PAGE - 4,
            Kind::Writers | Kind::CompatWriters => 4,
            _ => 64,
        };
        let mut lock = Self {
            word: page.wrapping_byte_add(offset).cast(),
            kind,
            is_shared,
            words: [0; 8],
        };
        lock.is_owned_by(0);
        lock
    }

    pub(crate) fn page(&self) -> Pointer {
        let offset = self.word as usize % PAGE;
        self.word.wrapping_byte_sub(offset).cast()
    }

    pub(crate) fn address(&self) -> u64 {
        self.word as u64
    }

    /// The owner's number, any, is written down where this kind has it.
    pub(crate) fn is_owned_by(&mut self, number: u32) {
        let masked = number & !(WAITERS | OWNER_DIED);
        self.words = match self.kind {
            Kind::Plain => [0; 8],
            Kind::Mutex => [2, 0, number, 1, 0x81, 0, 0, 0],
            Kind::Unused => [2, 0, number, 0, 0, 0, 0, 0],
            Kind::Crowded => [2, 0, number, (1 << 22) + 1, 0, 0, 0, 0],
            Kind::Odd => [2, 0, number, 1, 0x800, 0, 0, 0],
            Kind::Robust | Kind::Torn => [number | WAITERS, 1, masked, 1, 0x10, 0, 0, 0],
            Kind::Inheriting => [number | WAITERS, 1, masked, 1, 0x20, 0, 0, 0],
            Kind::Disagreeing => [number | WAITERS, 1, masked + 1, 1, 0x10, 0, 0, 0],
            Kind::Phase => [3, 0, 0, 0, number, 0, 0, 0],
            Kind::Writers => [3, 0, 0, number, 0, 0, 0, 0],
            Kind::Joined => [number, 0, 0, 0, 0, 0, 0, 0],
            Kind::CompatMutex => [2, 0, number, 0x81, 1, 0, 0, 0],
            Kind::CompatRobust => [number | WAITERS, 1, masked, 0x10, 1, 0, 0, 0],
            Kind::CompatPhase => [3, 0, 0, 0, 0x0101, number, 0, 0],
            Kind::CompatWriters => [3, 0, 0, 0, number, 0, 0, 0],
        };
        let readable = if self.kind == Kind::Torn { 1 } else { 8 };
        // SAFETY: words of the page, to which nothing else points.
        unsafe { ptr::copy_nonoverlapping(self.words.as_ptr(), self.word, readable) };
    }

    /// The word that a waiter expects.
    pub(crate) fn value(&self) -> u32 {
        match self.kind {
            // 1 would make it a thread's own word.
            Kind::Plain => 7,
            _ => self.words[0],
        }
    }

    /// The owner that the lock names to one who waits with this operation for this value, and where (`enum holder_place`): only
    /// threads of the waiter's own process are joined. 32-bit libraries have some words in another order.
    pub(crate) fn names(&self, operation: u8, value: u32, is_compat: bool) -> Option<(u32, u64)> {
        let words = self.words;
        let word = words[0] & !(WAITERS | OWNER_DIED);
        if operation >= FUTEX2 {
            return None;
        }
        if PI_WAITS.contains(&operation) {
            return Some((word, IN_WORD));
        }
        let is_whole = self.kind != Kind::Torn;
        let (users, kind) = if is_compat {
            (words[4], words[3])
        } else {
            (words[3], words[4])
        };
        // A bit for waiters stands beside an owner: in a robust mutex.
        if value & WAITERS != 0 {
            let is_robust = is_whole && kind & ROBUST != 0 && words[2] == word;
            return is_robust.then_some((word, IN_WORD));
        }
        if self.is_shared && value == words[0] && value > 3 {
            return Some((value, JOINED));
        }
        let is_mutex = (1..=1 << 22).contains(&users) && kind & !MUTEX_KINDS == 0;
        // A rwlock is waited for at one word or the next one.
        let writer = match is_compat {
            true if words[5] != 0 && words[4] & !RWLOCK_FLAGS == 0 => (words[5], OF_PHASE),
            true => (words[4], OF_WRITERS),
            false if !self.address().is_multiple_of(8) => (words[3], OF_WRITERS),
            false => (words[4], OF_PHASE),
        };
        match value {
            2 if is_whole && is_mutex => Some((words[2], OF_MUTEX)),
            3 if is_whole => Some(writer),
            _ => None,
        }
    }
}
