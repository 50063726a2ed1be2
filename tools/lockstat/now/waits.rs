//! The waits of one look: which lock, whose.

use std::collections::HashSet;

use symbols::memory;

use super::files::FileLocks;
use super::futex::Futex;
use super::graph::{Edge, Releaser};
use super::lock::{Holder, Identity, Told, Wait, Waited};
use super::servers::Backends;
use super::shared::SharedMemory;
use super::thread::{KernelKind, KernelLock, Thread, Threads};
use super::words::{self, Known, Layout, Named};
use crate::lockstat::futex::{Call, Class};

/// Flags in the low bits of the kernel's owner fields: up to three for mutexes and rwsems, one for rt-mutexes.
const OWNER_FLAGS: u64 = 7;
/// rwsem: a writer has it.
const WRITER_LOCKED: u64 = 1;
const READERS_SHIFT: u32 = 8;

/// A wait, and the futex that only the waiter's stack can tell more about.
pub(crate) struct Found {
    pub(crate) wait: Wait,
    /// The futex and what it holds.
    pub(crate) unsure: Option<(Futex, Option<u32>)>,
}

/// The waits of all threads of the processes asked for, and of those that these wait for.
///
/// The memory of address spaces in `locked` is not read.
pub(crate) fn find(threads: &Threads, locked: &HashSet<u64>, servers: &Backends) -> Vec<Found> {
    let shared = SharedMemory::new(threads, locked);
    let files = FileLocks::read(threads);
    let wanted = threads.all.iter().filter(|thread| thread.wanted);
    let mut open: Vec<u32> = wanted.map(|thread| thread.task.tgid).collect();
    let mut seen: HashSet<u32> = open.iter().copied().collect();
    open = seen.iter().copied().collect();
    let mut found = Vec::new();
    while !open.is_empty() {
        let members: HashSet<u32> = open.drain(..).collect();
        for (index, thread) in threads.all.iter().enumerate() {
            if !members.contains(&thread.task.tgid) {
                continue;
            }
            let sources = (locked, &shared, &files, servers);
            let Some(wait) = wait_of(threads, index, sources) else {
                continue;
            };
            if let Some(holder) = wait.wait.holder.member() {
                let tgid = threads.all[holder].task.tgid;
                if seen.insert(tgid) {
                    open.push(tgid);
                }
            }
            found.push(wait);
        }
    }
    found
}

/// What waits are known by, beside the threads.
type Sources<'a> = (
    &'a HashSet<u64>,
    &'a SharedMemory<'a>,
    &'a FileLocks,
    &'a Backends,
);

fn wait_of(
    threads: &Threads,
    index: usize,
    (locked, shared, files, servers): Sources<'_>,
) -> Option<Found> {
    let thread = &threads.all[index];
    if !thread.is_asleep() || thread.is_dead() {
        return None;
    }
    // Whatever call it sleeps in: it waits for its own.
    if let Some(wait) = servers.wait(threads, index, locked) {
        return Some(Found { wait, unsure: None });
    }
    match (Futex::of(thread), thread.kernel_lock) {
        (Some(futex), _) => Some(user_wait(threads, index, &futex, locked, shared)),
        (None, Some(lock)) => Some(Found {
            wait: kernel_wait(threads, index, &lock),
            unsure: None,
        }),
        (None, None) => files
            .wait(threads, index)
            .map(|wait| Found { wait, unsure: None }),
    }
}

fn user_wait(
    threads: &Threads,
    index: usize,
    futex: &Futex,
    locked: &HashSet<u64>,
    shared: &SharedMemory<'_>,
) -> Found {
    let thread = &threads.all[index];
    let tgid = thread.task.tgid;
    let is_locked = locked.contains(&thread.space);
    let read = |address: u64, words: &mut [u32]| !is_locked && read_words(tgid, address, words);
    let is_own = || futex.private || shared.has_own_numbers(thread, futex.address);
    let named = |tid: u32| match tid {
        0 => Named::Nobody,
        _ if is_own() => named(threads, thread, tid),
        _ => Named::Unsure,
    };
    let known = words::lock_at(futex, Layout::of(thread.compat), &read, &named);
    let Known {
        class,
        holder,
        address,
    } = known.unwrap_or(Known {
        class: Class::Unknown,
        holder: Holder::Unrecorded,
        address: futex.address,
    });
    let lock = match (class, holder) {
        (Class::Join, _) => Identity::Thread(futex.value),
        _ => Identity::Private {
            space: thread.space,
            address,
        },
    };
    let mut word = [0];
    // An ID that nobody has, or nobody knows whose it is, may be no ID at all: the waiter's stack has to confirm the lock.
    let is_unsure = match holder {
        Holder::Gone(_) => true,
        Holder::Unrecorded if known.is_some() => !futex.private,
        _ => known.is_none() && futex.may_be_lock(),
    };
    let unsure = is_unsure.then(|| {
        let word = read(futex.address, &mut word).then(|| word[0]);
        (*futex, word)
    });
    let wait = Wait {
        waiter: index,
        kind: Waited::Program(class),
        name: String::new(),
        lock,
        holder,
        timed: futex.timed,
        private: futex.private,
        is_over: false,
        told: Told::default(),
    };
    Found { wait, unsure }
}

fn read_words(tgid: u32, address: u64, words: &mut [u32]) -> bool {
    let mut bytes = vec![0; 4 * words.len()];
    if memory::read(tgid, address, &mut bytes).ok() != Some(bytes.len()) {
        return false;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes
            .first_chunk()
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    }
    true
}

/// Kernel threads have no locks of programs.
fn named(threads: &Threads, waiter: &Thread, tid: u32) -> Named {
    let Some(index) = threads.as_known_to(waiter, tid) else {
        return Named::Nobody;
    };
    let thread = &threads.all[index];
    match thread.space {
        _ if thread.is_dead() => Named::Nobody,
        0 => Named::Nobody,
        space if space == waiter.space => Named::Own(index),
        _ => Named::Stranger(index),
    }
}

fn kernel_wait(threads: &Threads, index: usize, lock: &KernelLock) -> Wait {
    let thread = &threads.all[index];
    Wait {
        waiter: index,
        kind: Waited::Kernel(lock.kind),
        name: if lock.is_mmap_lock {
            format!("mmap_lock of process {}", thread.task.tgid)
        } else {
            String::new()
        },
        lock: Identity::Kernel(lock.address),
        holder: kernel_holder(threads, lock),
        timed: false,
        private: false,
        is_over: false,
        told: Told::default(),
    }
}

/// A task that is not among the threads has ended since, or was never one: the lock was read without being taken.
pub(crate) fn kernel_holder(threads: &Threads, lock: &KernelLock) -> Holder {
    let owner = threads.of_task(lock.owner & !OWNER_FLAGS);
    match lock.kind {
        KernelKind::Mutex | KernelKind::RtMutex => owner.map_or(Holder::Unrecorded, Holder::Thread),
        KernelKind::Semaphore => owner.map_or(Holder::Unrecorded, Holder::Perhaps),
        KernelKind::RwsemRead | KernelKind::RwsemWrite if lock.count & WRITER_LOCKED != 0 => {
            owner.map_or(Holder::Unrecorded, Holder::Thread)
        }
        // Who took it last as a reader is noted, but not when that one has left.
        KernelKind::RwsemRead | KernelKind::RwsemWrite => {
            match (owner, lock.count >> READERS_SHIFT) {
                (_, 0) => Holder::Unrecorded,
                (Some(reader), _) => Holder::Perhaps(reader),
                (None, readers) => Holder::Readers(readers),
            }
        }
    }
}

impl Wait {
    /// A futex of the process's own, of which nothing is known.
    pub(crate) fn is_unknown(&self) -> bool {
        self.private && self.kind == Waited::Program(Class::Unknown)
    }

    /// What decides whether it can ever end.
    pub(crate) fn edge(&self, threads: &Threads) -> Edge {
        let process = threads.all[self.waiter].task.tgid;
        Edge {
            waiter: self.waiter,
            releaser: match self.holder {
                Holder::Thread(thread) => Releaser::Thread(thread),
                Holder::Perhaps(thread) | Holder::Ahead(thread) => Releaser::Perhaps(thread),
                // Others may have a file locked as a whole with it; that of the waiter's own process is in its own way, most likely.
                Holder::Process(leader)
                    if !self.is_of_one_process() && threads.all[leader].task.tgid != process =>
                {
                    Releaser::Unknown
                }
                Holder::Process(leader) => Releaser::AnyOf(threads.all[leader].task.tgid),
                Holder::Gone(_) => Releaser::Nobody,
                _ if self.is_over => Releaser::Unknown,
                Holder::Readers(_) | Holder::Unrecorded if self.private => Releaser::AnyOf(process),
                Holder::Readers(_) | Holder::Unrecorded => Releaser::Unknown,
            },
            timed: self.timed,
        }
    }

    /// True if nobody but threads of one process can have what is waited for, where a process is known to.
    pub(crate) fn is_of_one_process(&self) -> bool {
        let is_process = matches!(self.holder, Holder::Process(_));
        !is_process || self.kind == Waited::Program(Class::Posix)
    }

    /// After the waiter's stack was asked, functions leaf first. Where there are none, as in 32-bit programs, nothing is known better
    /// than by the words.
    pub(crate) fn settle<'a>(
        &mut self,
        futex: &Futex,
        word: Option<u32>,
        functions: impl Iterator<Item = Call<'a>>,
    ) {
        let mut functions = functions.peekable();
        if !self.kind.is_event() && functions.peek().is_none() {
            return;
        }
        let class = futex.class(word, functions);
        if Waited::Program(class) != self.kind {
            self.kind = Waited::Program(class);
            self.holder = Holder::Unrecorded;
            if let Identity::Private { address, .. } = &mut self.lock {
                *address = begin(class, futex);
            }
        }
        if class == Class::ParkingLot {
            // It sleeps on a word of its own; the lock's address is in no register any more.
            let space = match self.lock {
                Identity::Private { space, .. } => space,
                _ => 0,
            };
            self.lock = Identity::Hidden {
                waiter: self.waiter,
                space,
            };
        }
    }
}

/// Where a lock begins that its words did not tell. glibc's rwlocks begin at a multiple of 8, and their waiters sleep on the words 8
/// and 12 bytes behind that, which hold 2 or 3: one lock. musl's sleep on its first word, whose highest bit says so.
fn begin(class: Class, futex: &Futex) -> u64 {
    let address = futex.address;
    match class {
        Class::RwlockRead | Class::RwlockWrite if futex.value > 3 => address,
        Class::RwlockRead | Class::RwlockWrite if address.is_multiple_of(8) => {
            address.wrapping_sub(8)
        }
        Class::RwlockRead | Class::RwlockWrite => address.wrapping_sub(12),
        _ => address,
    }
}
