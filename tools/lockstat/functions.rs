//! Functions that wait on futexes, of the libraries that have locks, and what waiting in them means.

/// What a function waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Mutex,
    /// glibc's own locks, of malloc and stdio.
    LibraryLock,
    RwlockRead,
    RwlockWrite,
    RustMutex,
    RustRwlock,
    RustOnce,
    ParkingLot,
    /// The Go runtime's own locks.
    Go,
    Cond,
    Sem,
    Join,
    Barrier,
    /// A thread without work.
    Park,
}

/// What functions stand for by the beginning of their [`bare`] names, more special ones first.
const NAMES: &[(&str, Function)] = &[
    ("pthread_mutex_", Function::Mutex),
    ("lll_mutex_lock", Function::Mutex),
    ("lll_lock_wait_private", Function::LibraryLock),
    ("pthread_cond_", Function::Cond),
    ("pthread_rwlock_rdlock", Function::RwlockRead),
    ("pthread_rwlock_timedrdlock", Function::RwlockRead),
    ("pthread_rwlock_clockrdlock", Function::RwlockRead),
    ("pthread_rwlock_", Function::RwlockWrite),
    ("pthread_barrier_wait", Function::Barrier),
    ("pthread_clockjoin", Function::Join),
    ("pthread_join", Function::Join),
    ("pthread_timedjoin", Function::Join),
    ("pthread_tryjoin", Function::Join),
    ("mtx_lock", Function::Mutex),
    ("mtx_timedlock", Function::Mutex),
    ("cnd_", Function::Cond),
    ("new_sem_wait", Function::Sem),
    ("new_sem_clockwait", Function::Sem),
    ("new_sem_timedwait", Function::Sem),
    ("sem_wait", Function::Sem),
    ("sem_timedwait", Function::Sem),
    ("sem_clockwait", Function::Sem),
    ("std::sys::sync::mutex::", Function::RustMutex),
    ("std::sys::sync::rwlock::", Function::RustRwlock),
    ("std::sys::sync::once::", Function::RustOnce),
    ("std::sys::sync::condvar::", Function::Cond),
    ("std::sys::sync::thread_parking::", Function::Park),
    ("std::sys_common::mutex::", Function::RustMutex),
    ("std::sys::unix::locks::futex_mutex::", Function::RustMutex),
    (
        "std::sys::unix::locks::futex_rwlock::",
        Function::RustRwlock,
    ),
    ("std::sys::unix::locks::futex_condvar::", Function::Cond),
    ("std::thread::park", Function::Park),
    ("std::sync::mpmc::", Function::Park),
    ("std::sync::mpsc::", Function::Park),
    ("std::sys::pal::unix::thread::Thread::join", Function::Join),
    ("std::sys::thread::unix::Thread::join", Function::Join),
    ("parking_lot::condvar::", Function::Cond),
    ("parking_lot::raw_", Function::ParkingLot),
    ("runtime.lock2", Function::Go),
    ("runtime.lock", Function::Go),
    ("runtime.notesleep", Function::Park),
    ("runtime.notetsleep", Function::Park),
    ("absl::CondVar::", Function::Cond),
    ("absl::Mutex::", Function::Mutex),
    ("std::__atomic_futex_unsigned", Function::Cond),
];

/// Names that say that a lock is waited for, but not yet which: those above them do.
const UNDECIDED: &[&str] = &["parking_lot_core::"];

/// Lock functions are at the leaf: further up is who calls them.
pub(crate) const MAX_FRAMES: usize = 16;

/// The function of a lock library that a stack, leaf first, waits in; `None`: none that is known.
pub(crate) fn waited_in<'a>(functions: impl Iterator<Item = &'a str>) -> Option<Function> {
    let mut fallback = None;
    for function in functions.take(MAX_FRAMES) {
        let name = bare(function);
        if let Some((_, known)) = NAMES.iter().find(|(start, _)| name.starts_with(start)) {
            return Some(*known);
        }
        if UNDECIDED.iter().any(|start| name.starts_with(start)) {
            fallback = Some(Function::ParkingLot);
        }
    }
    fallback
}

/// Without what compilers put in front of `impl` blocks, and glibc of its aliases.
pub(crate) fn bare(function: &str) -> &str {
    let name = function.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name);
    name.trim_start_matches('_')
}
