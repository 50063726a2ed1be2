//! Locks of the kernel: where they lie, what class they are of, and whom they say that they belong to.

use std::collections::BTreeMap;
use std::ffi::CStr;

use super::{Owners, THREADS};
use crate::calling::{Pointer, Programs};
use crate::futex_account::Key;

/// Flags of include/trace/events/lock.h: `LCB_F_SPIN`, `LCB_F_READ`, `LCB_F_WRITE`, `LCB_F_RT`, `LCB_F_PERCPU`, `LCB_F_MUTEX`
pub(super) const SPIN: u32 = 1;
pub(super) const READ: u32 = 2;
const WRITE: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
pub(super) const MUTEX: u32 = 32;

/// Classes of locks, as the tool numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Semaphore,
    Spinlock,
    Rwlock,
    Mutex,
    Rwsem,
    RtMutex,
    PercpuRwsem,
}

impl Class {
    pub(super) fn spins(self) -> bool {
        matches!(self, Self::Spinlock | Self::Rwlock)
    }

    /// Flags of those that wait for it; a reader's come last.
    pub(super) fn flags(self) -> &'static [u32] {
        match self {
            Self::Semaphore => &[0],
            Self::Spinlock => &[SPIN],
            Self::Rwlock => &[SPIN | WRITE, SPIN | READ],
            Self::Mutex => &[MUTEX, SPIN | MUTEX],
            Self::Rwsem => &[WRITE, READ],
            Self::RtMutex => &[RT],
            Self::PercpuRwsem => &[PERCPU | WRITE, PERCPU | READ],
        }
    }
}

/// Kinds of names, as the tool numbers them, and what only looks like an inode.
pub(super) const PLAIN: u32 = 0;
pub(super) const MMAP: u32 = 1;
pub(super) const RUN_QUEUE: u32 = 2;
pub(super) const PIPE: u32 = 3;
const INODE: u32 = 4;
const INVALIDATE: u32 = 8;
const LAST_OF_INODE: u32 = 9;
const NO_INODE: u32 = 10;

const ALL: [(u32, Class, u32); 27] = [
    (PLAIN, Class::Semaphore, 1),
    (PLAIN, Class::Spinlock, 2),
    (PLAIN, Class::Rwlock, 2),
    (PLAIN, Class::Mutex, 1),
    (PLAIN, Class::Mutex, 1),
    (PLAIN, Class::Mutex, 1),
    (PLAIN, Class::Rwsem, 2),
    (PLAIN, Class::Rwsem, 2),
    (PLAIN, Class::RtMutex, 2),
    (PLAIN, Class::PercpuRwsem, 2),
    (MMAP, Class::Rwsem, 2),
    (MMAP, Class::Rwsem, 2),
    (RUN_QUEUE, Class::Spinlock, 0),
    (RUN_QUEUE, Class::Spinlock, 0),
    // Nobody is of this one's CPU.
    (RUN_QUEUE, Class::Spinlock, 0),
    (PIPE, Class::Mutex, 1),
    (PIPE, Class::Mutex, 1),
    (4, Class::Rwsem, 2),
    (5, Class::Spinlock, 0),
    (6, Class::Spinlock, 0),
    (7, Class::Rwsem, 2),
    (INVALIDATE, Class::Rwsem, 2),
    (INVALIDATE, Class::Rwsem, 2),
    (LAST_OF_INODE, Class::Spinlock, 0),
    (4, Class::Rwsem, 2),
    (NO_INODE, Class::Rwsem, 2),
    (PLAIN, Class::Semaphore, 1),
];

pub(super) struct Lock {
    pub(super) page: Pointer,
    pub(super) address: Pointer,
    pub(super) kind: u32,
    pub(super) class: Class,
    /// Number of words in which it names its owner.
    pub(super) words: u32,
    pub(super) owner: Option<usize>,
    /// A reader has it.
    pub(super) is_read: bool,
    slab: &'static [u8],
    /// Number of its page.
    number: u64,
}

pub(super) fn make(programs: &Programs) -> Vec<Lock> {
    const SLABS: [Option<&CStr>; 3] = [None, Some(c"kmalloc"), Some(c"merged")];
    let make = |(at, (kind, class, words)): (usize, &(u32, Class, u32))| {
        let number = at as u32 + 1;
        let slab = SLABS[at % SLABS.len()];
        let page = programs.page(number, slab, at % SLABS.len() == 2);
        Lock {
            page,
            address: programs.lock(page, *kind),
            kind: *kind,
            class: *class,
            words: *words,
            owner: None,
            is_read: false,
            slab: if at % SLABS.len() == 1 {
                b"kmalloc"
            } else {
                b""
            },
            number: u64::from(number),
        }
    };
    ALL.iter().enumerate().map(make).collect()
}

/// The first bytes of a text as the host hands them over.
pub(super) fn letters(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..text.len()].copy_from_slice(text);
    u64::from_le_bytes(bytes)
}

/// A thread's name.
pub(super) fn name_of(tid: u32) -> u64 {
    letters(format!("t{tid:02}").as_bytes())
}

/// Names by lock: number, kernel stack, kind, type of file, slab, text, device.
pub(super) type Names = BTreeMap<Key, [u64; 7]>;

impl Owners {
    /// All that is known of a lock when this thread is the first to wait for it, where it was then.
    pub(super) fn name(&self, key: Key, lock: usize, at: usize, stack: u64) -> [u64; 7] {
        let of = &self.locks[lock];
        let slab = match self.lacks == c"bpf_get_kmem_cache" {
            true => 0,
            false => letters(of.slab),
        };
        let nothing = [0, stack, 0, 0, slab, 0, 0];
        match of.kind {
            RUN_QUEUE if lock != self.unknown_queue() && self.lacks != c"queue->rq" => [
                self.cpu_of(lock),
                stack,
                u64::from(RUN_QUEUE),
                0,
                slab,
                0,
                0,
            ],
            MMAP if key.tgid != 0 => {
                let text = name_of(self.threads[at].tid);
                [0, stack, u64::from(MMAP), 0, slab, text, 0]
            }
            PIPE => {
                let is_his = self.pipe_of(at) == Some(lock);
                let inode = if is_his { 77 } else { 0 };
                [inode, stack, u64::from(PIPE), 0, slab, 0, 0]
            }
            INVALIDATE if self.lacks == c"pages->invalidate_lock" => nothing,
            kind @ INODE..=LAST_OF_INODE => {
                let inode = of.number + 1_000;
                let text = if inode % 2 == 1 { letters(b"a.txt") } else { 0 };
                let kind = u64::from(kind);
                [inode, stack, kind, 0o10, slab, text, letters(b"sda1")]
            }
            _ => nothing,
        }
    }

    fn first_of(kind: u32) -> usize {
        ALL.iter().position(|lock| lock.0 == kind).expect("one")
    }

    pub(super) fn cpu_of(&self, queue: usize) -> u64 {
        (queue - Self::first_of(RUN_QUEUE)) as u64 + 3
    }

    fn unknown_queue(&self) -> usize {
        Self::first_of(RUN_QUEUE) + 2
    }

    /// The run queue of a thread's CPU.
    pub(super) fn queue_of(&self, at: usize) -> Option<usize> {
        (at % 3 < 2).then_some(Self::first_of(RUN_QUEUE) + at % 3)
    }

    /// The lock of a process's memory.
    pub(super) fn memory_of(&self, at: usize) -> Option<usize> {
        (at % 3 < 2).then_some(Self::first_of(MMAP) + at % 3)
    }

    /// The pipe that a thread's call is about.
    pub(super) fn pipe_of(&self, at: usize) -> Option<usize> {
        (at % 4 == 1).then_some(Self::first_of(PIPE))
    }

    /// The owner that a lock names to those who wait for it, as it calls him: a thread, or a reader.
    pub(super) fn owner_of(&self, lock: usize) -> Option<(usize, bool)> {
        let of = &self.locks[lock];
        let owner = of.owner?;
        match of.class {
            Class::Mutex | Class::RtMutex => Some((owner, false)),
            Class::Rwsem => Some((owner, of.is_read)),
            Class::Semaphore if self.lacks != c"semaphore->last_holder" => Some((owner, false)),
            _ => None,
        }
    }

    /// Another thread has the lock from now on, or nobody.
    pub(super) fn changes_hands(&mut self, lock: usize) {
        let owner = self.rng.usize(0..=THREADS + 1);
        let owner = (owner <= THREADS).then_some(owner);
        let of = &mut self.locks[lock];
        of.owner = owner;
        let bits = self.rng.u64(0..8);
        of.is_read = bits & 1 == 1;
        let task = owner.map_or(0, |owner| self.threads[owner].task as u64);
        self.programs.owned(of.address, of.words, task | bits);
    }
}
