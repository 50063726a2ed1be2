//! What a futex is: the kernel only knows a number that somebody waits for to change.
//!
//! The functions on the waiter's stack say it best. Where they have no names, the call and what the lock's memory held say
//! it with less certainty.

use crate::lockstat::functions::{Function, MAX_FRAMES, bare, waited_in};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Mutex,
    Rwlock,
    /// A mutex with priority inheritance.
    Pi,
    /// Rust's own Mutex, RwLock and Once.
    Rust,
    ParkingLot,
    /// The Go runtime's own locks; its sync.Mutex parks goroutines, not threads.
    Go,
    Cond,
    Sem,
    Join,
    Barrier,
    /// A thread without work.
    Park,
    Unknown,
}

impl Class {
    pub(crate) const ALL: [Self; 12] = [
        Self::Mutex,
        Self::Rwlock,
        Self::Pi,
        Self::Rust,
        Self::ParkingLot,
        Self::Go,
        Self::Cond,
        Self::Sem,
        Self::Join,
        Self::Barrier,
        Self::Park,
        Self::Unknown,
    ];

    /// A stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Rwlock => "rwlock",
            Self::Pi => "pi",
            Self::Rust => "rust",
            Self::ParkingLot => "parking_lot",
            Self::Go => "go",
            Self::Cond => "cond",
            Self::Sem => "sem",
            Self::Join => "join",
            Self::Barrier => "barrier",
            Self::Park => "park",
            Self::Unknown => "unknown",
        }
    }

    /// Whether waiting for it is contention, and not waiting for work.
    pub(crate) fn is_contention(self) -> bool {
        self <= Self::Go
    }

    /// Whether the lock's own memory can say who holds it.
    pub(crate) fn names_holder(self) -> bool {
        matches!(self, Self::Mutex | Self::Rwlock | Self::Pi | Self::Join)
    }
}

impl From<Function> for Class {
    fn from(function: Function) -> Self {
        match function {
            Function::Mutex | Function::LibraryLock => Self::Mutex,
            Function::RwlockRead | Function::RwlockWrite => Self::Rwlock,
            Function::RustMutex | Function::RustRwlock | Function::RustOnce => Self::Rust,
            Function::ParkingLot => Self::ParkingLot,
            Function::Go => Self::Go,
            Function::Cond => Self::Cond,
            Function::Sem => Self::Sem,
            Function::Join => Self::Join,
            Function::Barrier => Self::Barrier,
            Function::Park => Self::Park,
        }
    }
}

/// `enum futex_operation` of the BPF side.
pub(crate) mod operation {
    pub(crate) const WAIT: u8 = 0;
    pub(crate) const LOCK_PI: u8 = 6;
    pub(crate) const WAIT_BITSET: u8 = 9;
    pub(crate) const WAIT_REQUEUE_PI: u8 = 11;
    pub(crate) const LOCK_PI2: u8 = 13;
    pub(crate) const REQUEUED: u8 = 69;
}

/// `enum holder_place` of the BPF side: where the ID of a living thread was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    Word,
    Mutex,
    Phase,
    Writers,
    Joined,
}

impl From<u8> for Place {
    fn from(code: u8) -> Self {
        match code {
            1 => Self::Word,
            2 => Self::Mutex,
            3 => Self::Phase,
            4 => Self::Writers,
            5 => Self::Joined,
            _ => Self::Nowhere,
        }
    }
}

/// What is known of a wait without names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) operation: u8,
    /// Between processes, as far as the call says.
    pub(crate) shared: bool,
    /// Its timeout, if it has one, is on the clock of the day: glibc's way, not Rust's.
    pub(crate) realtime: bool,
    /// What the word was expected to be.
    pub(crate) value: u32,
    pub(crate) place: Place,
}

/// A class, and how sure it is, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) class: Class,
    pub(crate) confidence: u8,
}

/// Judges by the call and by the functions of the waiter's stack, leaf first.
pub(crate) fn classify<'a>(
    evidence: &Evidence,
    functions: impl Iterator<Item = &'a str>,
) -> Verdict {
    let verdict = |class, confidence| Verdict { class, confidence };
    let by_call = by_call(evidence);
    if is_pi(evidence.operation) {
        return by_call;
    }
    let mut functions = functions.peekable();
    let leaf = functions.peek().copied();
    match waited_in(functions).map(Class::from) {
        // The kernel moved it to a lock: it is no longer in what its stack says.
        Some(Class::Cond) if evidence.operation == operation::REQUEUED => verdict(Class::Mutex, 80),
        Some(class) if class == by_call.class => verdict(class, 99),
        Some(class) => verdict(class, 95),
        None if leaf.is_some_and(|leaf| is_nameless_semaphore(evidence, leaf)) => {
            verdict(Class::Sem, 50)
        }
        None => by_call,
    }
}

/// sem_wait jumps to what waits: in a C library without debug information its name is in no stack. A condition variable's waits are
/// the same calls, and their function's name is in the stack.
fn is_nameless_semaphore(evidence: &Evidence, leaf: &str) -> bool {
    let is_call = evidence.operation == operation::WAIT_BITSET && evidence.realtime;
    let is_nowhere = evidence.place == Place::Nowhere && evidence.value == 0;
    let in_glibc = leaf.starts_with("libc.so") || leaf.starts_with("libpthread");
    is_call && is_nowhere && in_glibc
}

fn is_pi(operation: u8) -> bool {
    matches!(operation, operation::LOCK_PI | operation::LOCK_PI2)
}

fn by_call(evidence: &Evidence) -> Verdict {
    use operation::{REQUEUED, WAIT, WAIT_BITSET, WAIT_REQUEUE_PI};
    let (class, confidence) = match (evidence.operation, evidence.place, evidence.value) {
        (op, _, _) if is_pi(op) => (Class::Pi, 99),
        (WAIT_REQUEUE_PI, _, _) => (Class::Cond, 95),
        (_, Place::Mutex, _) => (Class::Mutex, 90),
        (_, Place::Joined, _) => (Class::Join, 90),
        (_, Place::Word, _) => (Class::Mutex, 85),
        (_, Place::Phase | Place::Writers, _) => (Class::Rwlock, 80),
        (REQUEUED, _, _) => (Class::Mutex, 70),
        // glibc's locks without owner: of the heap, of stdio.
        (WAIT, _, 2) => (Class::Mutex, 60),
        (WAIT_BITSET, _, u32::MAX) => (Class::Park, 50),
        // A writer that waits for readers, whom nobody knows by name.
        (WAIT_BITSET, _, 2) if evidence.realtime => (Class::Rwlock, 50),
        (WAIT_BITSET, _, 2) if !evidence.shared => (Class::Mutex, 50),
        _ => (Class::Unknown, 0),
    };
    Verdict { class, confidence }
}

/// Beginnings of names, and files, of what implements locks.
const LIBRARY: &[&str] = &[
    "lll_",
    "futex_",
    "syscall",
    "pthread_",
    "sem_",
    "new_sem_",
    "mtx_",
    "cnd_",
    "std::",
    "core::",
    "alloc::",
    "parking_lot",
    "lock_api::",
    "gthread",
    "absl::",
    "runtime.",
    "sync.(",
    "internal/",
];

/// First function outside the lock's own code; `frames` are (name, file), leaf first.
pub(crate) fn first_caller<'a>(
    frames: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Option<&'a str> {
    let mut frames = frames.take(MAX_FRAMES * 2);
    let caller = frames.find(|(name, file)| !is_library(name, *file))?;
    Some(caller.0)
}

/// Who asked for a lock of Go's runtime that a thread waits for on a word of its own, not the lock's: lock_spinbit.go does so since
/// Go 1.24. `None`: it does not. Leaf first.
pub(crate) fn go_caller<'a>(functions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let functions = functions.take(MAX_FRAMES);
    let mut callers = functions.skip_while(|name| bare(name) != "runtime.semasleep");
    let own = callers.next()?;
    let caller = callers.find(|name| !bare(name).starts_with("runtime.lock"));
    Some(caller.unwrap_or(own))
}

fn is_library(name: &str, file: Option<&str>) -> bool {
    const FILES: [&str; 4] = ["libc.so", "libpthread", "ld-musl", "ld-linux"];
    let base = file.map(|file| file.rsplit('/').next().unwrap_or(file));
    let in_file = base.is_some_and(|base| FILES.iter().any(|start| base.starts_with(start)));
    in_file || LIBRARY.iter().any(|start| bare(name).starts_with(start))
}

#[cfg(test)]
#[path = "class_tests.rs"]
mod tests;
