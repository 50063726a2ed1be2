//! Functions that wait on futexes, of the libraries that have locks, and what waiting in them means.

use super::class::Class;

/// Classes by the beginning of functions' [`bare`] names, more special ones first.
const NAMES: &[(&str, Class)] = &[
    ("pthread_mutex_", Class::Mutex),
    ("lll_mutex_lock", Class::Mutex),
    ("lll_lock_wait_private", Class::LibraryLock),
    ("pthread_cond_", Class::Cond),
    ("pthread_rwlock_rdlock", Class::RwlockRead),
    ("pthread_rwlock_timedrdlock", Class::RwlockRead),
    ("pthread_rwlock_clockrdlock", Class::RwlockRead),
    ("pthread_rwlock_", Class::RwlockWrite),
    ("pthread_barrier_wait", Class::Barrier),
    ("pthread_clockjoin", Class::Join),
    ("pthread_join", Class::Join),
    ("pthread_timedjoin", Class::Join),
    ("pthread_tryjoin", Class::Join),
    ("mtx_lock", Class::Mutex),
    ("mtx_timedlock", Class::Mutex),
    ("cnd_", Class::Cond),
    ("new_sem_wait", Class::Sem),
    ("new_sem_clockwait", Class::Sem),
    ("new_sem_timedwait", Class::Sem),
    ("sem_wait", Class::Sem),
    ("sem_timedwait", Class::Sem),
    ("sem_clockwait", Class::Sem),
    ("std::sys::sync::mutex::", Class::RustMutex),
    ("std::sys::sync::rwlock::", Class::RustRwlock),
    ("std::sys::sync::once::", Class::RustOnce),
    ("std::sys::sync::condvar::", Class::Cond),
    ("std::sys::sync::thread_parking::", Class::Park),
    ("std::sys_common::mutex::", Class::RustMutex),
    ("std::sys::unix::locks::futex_mutex::", Class::RustMutex),
    ("std::sys::unix::locks::futex_rwlock::", Class::RustRwlock),
    ("std::sys::unix::locks::futex_condvar::", Class::Cond),
    ("std::thread::park", Class::Park),
    ("std::sync::mpmc::", Class::Park),
    ("std::sync::mpsc::", Class::Park),
    ("std::sys::pal::unix::thread::Thread::join", Class::Join),
    ("std::sys::thread::unix::Thread::join", Class::Join),
    ("parking_lot::condvar::", Class::Cond),
    ("parking_lot::raw_", Class::ParkingLot),
    ("runtime.lock2", Class::Go),
    ("runtime.lock", Class::Go),
    ("runtime.notesleep", Class::Park),
    ("runtime.notetsleep", Class::Park),
    ("absl::CondVar::", Class::Cond),
    ("absl::Mutex::", Class::Mutex),
    ("std::__atomic_futex_unsigned", Class::Cond),
];

/// Names that say that a lock is waited for, but not yet which: those above them do.
const UNDECIDED: &[&str] = &["parking_lot_core::"];

/// Lock functions are at the leaf: further up is who calls them.
pub(super) const MAX_FRAMES: usize = 16;

/// The function of a lock library that a stack, leaf first, waits in; `None`: none that is known.
pub(super) fn waited_in<'a>(functions: impl Iterator<Item = &'a str>) -> Option<Class> {
    let mut fallback = None;
    for function in functions.take(MAX_FRAMES) {
        let name = bare(function);
        if let Some((_, known)) = NAMES.iter().find(|(start, _)| name.starts_with(start)) {
            return Some(*known);
        }
        if UNDECIDED.iter().any(|start| name.starts_with(start)) {
            fallback = Some(Class::ParkingLot);
        }
    }
    fallback
}

/// Without what compilers put in front of `impl` blocks, and glibc of its aliases.
pub(super) fn bare(function: &str) -> &str {
    let name = function.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name);
    name.trim_start_matches('_')
}
