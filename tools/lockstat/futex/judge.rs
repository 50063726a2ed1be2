//! What a futex is: the kernel only knows a number that somebody waits for to change.
//!
//! The functions on the waiter's stack say it best. Where they have no names, the call and what the lock's memory held say
//! it with less certainty.

use profile::frame::Frame;

use super::class::Class;
use super::operation::Operation;
use super::rules::{MAX_FRAMES, Meaning, Role, Rules, bare};

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
    pub(crate) operation: Operation,
    /// Between processes, as far as the call says.
    pub(crate) shared: bool,
    /// Its timeout, if it has one, is on the clock of the day: glibc's way, not Rust's.
    pub(crate) realtime: bool,
    /// What the word was expected to be.
    pub(crate) value: u32,
    pub(crate) place: Place,
}

/// Confidence that only a stack with names gives, per cent.
pub(crate) const BY_NAME: u8 = 95;
/// Confidence that a call alone gives which hardly anything else makes, per cent.
pub(crate) const BY_CALL: u8 = 60;

/// Meaning of a futex, and how sure that is, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) meaning: Meaning,
    pub(crate) confidence: u8,
}

impl Verdict {
    /// Without a name: a lock is taken for one unless that is half a guess.
    fn of(class: Class, confidence: u8) -> Self {
        let role = match class.is_lock() && confidence >= BY_CALL {
            true => Role::Trouble,
            false => Role::Unsaid,
        };
        Self {
            meaning: Meaning {
                class,
                word: class.word(),
                role,
                is_own: false,
                behind: 0,
            },
            confidence,
        }
    }

    /// A lock of Java's that no rule knows, and that a thread has.
    pub(crate) fn owned() -> Self {
        Self::of(Class::Java, BY_NAME)
    }

    /// Meaning of a lock of Python's, whose role its library does not tell, where a rule knows what the program has made of it.
    pub(crate) fn made_into(mut self, rules: &Rules, frames: &[Frame]) -> Self {
        if self.meaning.role == Role::Unsaid
            && let Some((word, role)) = rules.named(calls(frames))
        {
            self.meaning.class = Class::Named;
            self.meaning.word = word;
            self.meaning.role = role;
        }
        self
    }
}

/// A function, and the file that it is in.
pub(crate) type Call<'a> = (&'a str, Option<&'a str>);

/// A stack's functions, leaf first.
pub(crate) fn calls(frames: &[Frame]) -> impl Iterator<Item = Call<'_>> + Clone {
    let leaf_first = frames.iter().rev();
    leaf_first.map(|frame| (&*frame.name, frame.module.as_deref()))
}

/// Judges by the call and by the functions of the waiter's stack, leaf first.
pub(crate) fn classify<'a>(
    rules: &Rules,
    evidence: &Evidence,
    functions: impl Iterator<Item = Call<'a>>,
) -> Verdict {
    let by_call = by_call(evidence);
    if evidence.operation == Operation::LockPi {
        return by_call;
    }
    let mut functions = functions.peekable();
    let leaf = functions.peek().copied();
    match rules.waited_in(functions, Some(evidence.value)) {
        // The kernel moved it to a lock: it is no longer in what its stack says.
        Some((
            _,
            Meaning {
                class: Class::Cond, ..
            },
        )) if evidence.operation == Operation::Requeued => Verdict::of(Class::Mutex, 80),
        Some((_, meaning)) => Verdict {
            meaning,
            confidence: match meaning.class.family() == by_call.meaning.class.family() {
                true => 99,
                false => BY_NAME,
            },
        },
        None if leaf.is_some_and(|(leaf, _)| is_nameless_semaphore(evidence, leaf)) => {
            Verdict::of(Class::Sem, 50)
        }
        // The C library's own locks have calls of their own: this is a program's futex, which may be anything.
        None if by_call.meaning.class == Class::LibraryLock
            && leaf.is_some_and(|(leaf, _)| bare(leaf) == "syscall") =>
        {
            Verdict::of(Class::LibraryLock, 50)
        }
        // A condition variable of musl's, or a thread whose end is awaited: glibc's value for locks.
        None if by_call.meaning.class == Class::LibraryLock && leaf.is_some_and(is_musl) => {
            Verdict::of(Class::Cond, BY_CALL)
        }
        None if evidence.value == MUSL_MUTEX && leaf.is_some_and(is_musl) => {
            Verdict::of(Class::Mutex, 90)
        }
        None => by_call,
    }
}

/// musl's file: glibc's is called `libc.so.6`.
fn is_musl((_, file): Call<'_>) -> bool {
    let base = file.map(|file| file.rsplit('/').next().unwrap_or(file));
    base.is_some_and(|base| base == "libc.so" || base.starts_with("ld-musl"))
}

/// sem_wait jumps to what waits: in a C library without debug information its name is in no stack. A condition variable's waits are
/// the same calls, and their function's name is in the stack.
fn is_nameless_semaphore(evidence: &Evidence, leaf: &str) -> bool {
    let is_call = evidence.operation == Operation::WaitBitset && evidence.realtime;
    let is_nowhere = evidence.place == Place::Nowhere && evidence.value == 0;
    let in_glibc = leaf.starts_with("libc.so") || leaf.starts_with("libpthread");
    is_call && is_nowhere && in_glibc
}

/// A normal mutex of musl's that somebody sleeps on: EBUSY, whoever has it.
const MUSL_MUTEX: u32 = 1 << 31 | 16;

fn by_call(evidence: &Evidence) -> Verdict {
    use Operation::{LockPi, RequeuePi, Requeued, Wait, WaitBitset};
    let (class, confidence) = match (evidence.operation, evidence.place, evidence.value) {
        (LockPi, _, _) => (Class::Pi, 99),
        (RequeuePi, _, _) => (Class::Cond, 95),
        (_, Place::Mutex, _) => (Class::Mutex, 90),
        (_, Place::Joined, _) => (Class::Join, 90),
        (_, Place::Word, _) => (Class::Mutex, 85),
        (_, Place::Phase | Place::Writers, _) => (Class::Rwlock, 80),
        (Requeued, _, _) => (Class::Mutex, 70),
        // glibc's locks without owner: of the heap, of stdio.
        (Wait, _, 2) => (Class::LibraryLock, BY_CALL),
        (Wait, _, MUSL_MUTEX) => (Class::Mutex, BY_CALL),
        (WaitBitset, _, u32::MAX) => (Class::Park, 50),
        // glibc's pthread_join from 2.43 on, for a thread that is joinable.
        (WaitBitset, _, 2) if evidence.realtime && evidence.shared => (Class::Join, 50),
        // A writer that waits for readers, whom nobody knows by name.
        (WaitBitset, _, 2) if evidence.realtime => (Class::Rwlock, 50),
        (WaitBitset, _, 2) if !evidence.shared => (Class::Mutex, 50),
        _ => (Class::Unknown, 0),
    };
    Verdict::of(class, confidence)
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

/// Frames among which one with a name is worth more than the first.
const NEAR: usize = 6;

/// `module+0x12`
fn is_nameless(name: &str) -> bool {
    name.rsplit_once("+0x")
        .is_some_and(|(_, offset)| offset.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// First function outside the lock's own code, with a name if one near it has; `frames` are leaf first.
pub(crate) fn first_caller<'a>(
    rules: &Rules,
    frames: impl Iterator<Item = Call<'a>> + Clone,
) -> Option<&'a str> {
    let within = rules
        .waited_in(frames.clone(), None)
        .map_or(0, |(at, _)| at + 1);
    let is_ours = |(name, file): &Call<'_>| is_library(name, *file) || rules.know(name, *file);
    let mut callers = frames.take(MAX_FRAMES * 2).skip(within).skip_while(is_ours);
    let first = callers.next()?;
    let mut near = [first].into_iter().chain(callers).take(NEAR);
    // The function that started the program asked for no lock.
    let is_caller = |(name, file): &Call<'_>| !is_nameless(name) && !is_library(name, *file);
    Some(near.find(is_caller).unwrap_or(first).0)
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
#[path = "judge_tests.rs"]
mod tests;
