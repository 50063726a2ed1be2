//! Whose a user lock is, by the words around the futex: glibc's locks name their owners.

use super::futex::Futex;
use super::lock::Holder;
use crate::lockstat::futex::{Class, Operation};

/// Bits of an owner's ID in a lock word that the kernel knows.
const TID_MASK: u32 = 0x3fff_ffff;
const WAITERS: u32 = 0x8000_0000;

/// `pthread_mutex_t`: lock, count, owner, users and kind.
const MUTEX_WORDS: usize = 5;
const MUTEX_OWNER: usize = 2;
/// Type, robust, inheriting, protecting, shared, elided or not.
const MUTEX_KINDS: u32 = 0x3f3;
const MUTEX_ROBUST: u32 = 0x10;
/// What a mutex with waiters holds.
const CONTENDED: u32 = 2;

/// `pthread_rwlock_t`: readers, writers, phase futex, writers futex, two pads, writer and shared.
const RWLOCK_WORDS: usize = 8;
const RWLOCK_PHASE: usize = 2;
const RWLOCK_WRITERS_FUTEX: usize = 3;
/// `readers`: in the write phase, wanted or had by a writer; readers are counted above.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READERS_SHIFT: u32 = 3;
/// Futex words of a rwlock that somebody sleeps on.
const FUTEX_USED: u32 = 2;
/// More readers than threads can be.
const MAX_READERS: u32 = 1 << 22;

/// In which words of its locks glibc keeps what differs between programs. Architecture: x86-64, and i386 beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    mutex_users: usize,
    mutex_kind: usize,
    rwlock_writer: usize,
    rwlock_shared: usize,
    /// What may be set in that word.
    shared_bits: u32,
    /// What a rwlock's address is a multiple of.
    rwlock_alignment: u64,
}

impl Layout {
    const NATIVE: Self = Self {
        mutex_users: 3,
        mutex_kind: 4,
        rwlock_writer: 6,
        rwlock_shared: 7,
        shared_bits: 1,
        rwlock_alignment: 8,
    };
    /// The word has four bytes: preferred side, shared, elision, a pad.
    const COMPAT: Self = Self {
        mutex_users: 4,
        mutex_kind: 3,
        rwlock_writer: 7,
        rwlock_shared: 6,
        shared_bits: 0x00ff_0103,
        rwlock_alignment: 4,
    };

    /// Which word of a rwlock a futex may be, seen from where such locks begin.
    fn rwlock_slots(self, futex: u64) -> impl Iterator<Item = usize> {
        let slots = [RWLOCK_PHASE, RWLOCK_WRITERS_FUTEX].into_iter();
        let begins = move |slot: &usize| {
            let base = futex.wrapping_sub(4 * *slot as u64);
            base.is_multiple_of(self.rwlock_alignment)
        };
        slots.filter(begins)
    }

    /// Of a 32-bit program, or another one.
    pub(crate) fn of(compat: bool) -> Self {
        if compat { Self::COMPAT } else { Self::NATIVE }
    }
}

/// A thread that an ID in a lock may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// A thread of the waiter's own process.
    Own(usize),
    /// A thread of another one.
    Stranger(usize),
    /// Nobody has the ID.
    Nobody,
    /// Whoever wrote it may have meant a thread of another PID namespace.
    Unsure,
}

/// What surrounds a futex: reads `words.len()` words at an address, or says that it could not.
pub(crate) type ReadWords<'a> = &'a dyn Fn(u64, &mut [u32]) -> bool;

/// What the words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) class: Class,
    pub(crate) holder: Holder,
    /// Where the lock begins.
    pub(crate) address: u64,
}

/// What the words say; `None` when they say nothing.
pub(crate) fn lock_at(
    futex: &Futex,
    layout: Layout,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<Known> {
    let here = |(class, holder)| Known {
        class,
        holder,
        address: futex.address,
    };
    match futex.operation {
        Operation::LockPi => {
            let mut word = [0];
            read(futex.address, &mut word).then_some(())?;
            let holder = owner(futex, word[0] & TID_MASK, named);
            Some(here((Class::Pi, holder.unwrap_or(Holder::Unrecorded))))
        }
        Operation::RequeuePi | Operation::Requeued | Operation::Any => None,
        Operation::Wait | Operation::WaitBitset => join(futex, read, named)
            .or_else(|| mutex(futex, layout, read, named))
            .map(here)
            .or_else(|| rwlock(futex, layout, read, named)),
    }
}

/// Whose an owner's ID is; `None`: no owner's, for a private lock has none in another process.
fn owner(futex: &Futex, tid: u32, named: &dyn Fn(u32) -> Named) -> Option<Holder> {
    match (tid, named(tid)) {
        (0, _) => Some(Holder::Unrecorded),
        (_, Named::Own(thread)) => Some(Holder::Thread(thread)),
        (_, Named::Stranger(_)) if futex.private => None,
        (_, Named::Stranger(thread)) => Some(Holder::Thread(thread)),
        (_, Named::Nobody) => Some(Holder::Gone(tid)),
        (_, Named::Unsure) => Some(Holder::Unrecorded),
    }
}

/// The kernel clears the word, and wakes, when the thread whose ID it holds has ended. It does so for everybody: not private.
fn join(
    futex: &Futex,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<(Class, Holder)> {
    let mut word = [0];
    if futex.private || !read(futex.address, &mut word) || word[0] != futex.value {
        return None;
    }
    match named(futex.value) {
        Named::Own(thread) => Some((Class::Join, Holder::Thread(thread))),
        Named::Nobody | Named::Stranger(_) | Named::Unsure => None,
    }
}

/// Untimed waits on mutexes are FUTEX_WAIT; an untimed FUTEX_WAIT_BITSET is something else, whatever lies behind it.
fn mutex(
    futex: &Futex,
    layout: Layout,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<(Class, Holder)> {
    if futex.operation == Operation::WaitBitset && !futex.timed {
        return None;
    }
    let mut words = [0; MUTEX_WORDS];
    if !read(futex.address, &mut words) || words[layout.mutex_kind] & !MUTEX_KINDS != 0 {
        return None;
    }
    let robust = words[layout.mutex_kind] & MUTEX_ROBUST != 0;
    let tid = words[MUTEX_OWNER];
    let contended = match robust {
        false => futex.value == CONTENDED && words[0] == CONTENDED,
        true => futex.value & WAITERS != 0 && words[0] & (WAITERS | TID_MASK) == WAITERS | tid,
    };
    if !contended || tid == 0 || words[layout.mutex_users] == 0 || tid > TID_MASK {
        return None;
    }
    owner(futex, tid, named).map(|holder| (Class::Mutex, holder))
}

/// glibc waits by CLOCK_REALTIME, unless asked otherwise (or by plain FUTEX_WAIT, before 2.34); Rust never does, and its counters
/// may look like anything.
fn rwlock(
    futex: &Futex,
    layout: Layout,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<Known> {
    if futex.operation == Operation::WaitBitset && !futex.realtime {
        return None;
    }
    layout.rwlock_slots(futex.address).find_map(|slot| {
        let base = futex.address.checked_sub(4 * slot as u64)?;
        let mut words = [0; RWLOCK_WORDS];
        let found = read(base, &mut words)
            && words[layout.rwlock_shared] & !layout.shared_bits == 0
            && words[4] == 0
            && words[slot] == futex.value
            && words[slot] & !1 == FUTEX_USED;
        let writer = words[layout.rwlock_writer];
        let (class, holder) = found
            .then(|| rwlock_holder(futex, slot, &words, writer, named))
            .flatten()?;
        Some(Known {
            class,
            holder,
            address: base,
        })
    })
}

fn rwlock_holder(
    futex: &Futex,
    slot: usize,
    words: &[u32; RWLOCK_WORDS],
    writer: u32,
    named: &dyn Fn(u32) -> Named,
) -> Option<(Class, Holder)> {
    let state = words[0];
    // Between a writer's turn and its taking it there is none: then only the waiter's stack can tell that this is a rwlock.
    let by_writer = || owner(futex, writer, named).filter(|_| writer != 0);
    let readers = state >> READERS_SHIFT;
    if slot == RWLOCK_WRITERS_FUTEX {
        // Writers queue behind the writer in line; if that one waits for readers, so do they.
        // `writers` counts none by default, but where writers are preferred.
        return (state & WRITE_LOCKED != 0)
            .then(by_writer)
            .flatten()
            .map(|holder| (Class::RwlockWrite, holder));
    }
    if words[slot] == FUTEX_USED {
        // A writer in line waits for the readers to leave.
        let plausible = state & WRITE_LOCKED != 0
            && state & WRITE_PHASE == 0
            && (1..MAX_READERS).contains(&readers);
        return plausible.then_some((Class::RwlockWrite, Holder::Readers(readers.into())));
    }
    let plausible = state & WRITE_PHASE != 0;
    plausible
        .then(by_writer)
        .flatten()
        .map(|holder| (Class::RwlockRead, holder))
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
