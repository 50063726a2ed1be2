//! What a futex is, by who called it: for locks that leave no owner behind.

use super::futex::{Futex, Operation};
use super::lock::Class;
use crate::lockstat::functions::{Function, waited_in};

impl From<Function> for Class {
    fn from(function: Function) -> Self {
        match function {
            Function::Mutex => Self::Mutex,
            Function::LibraryLock => Self::LibraryLock,
            Function::RwlockRead => Self::RwLockRead,
            Function::RwlockWrite => Self::RwLockWrite,
            Function::RustMutex => Self::RustMutex,
            Function::RustRwlock => Self::RustRwLock,
            Function::ParkingLot => Self::ParkingLot,
            Function::Go => Self::GoRuntime,
            Function::Join => Self::Join,
            Function::RustOnce
            | Function::Cond
            | Function::Sem
            | Function::Barrier
            | Function::Park => Self::Event,
        }
    }
}

const MUSL_WAITERS: u32 = 0x8000_0000;
/// A normal mutex of musl's that somebody sleeps on: EBUSY, whoever has it.
const MUSL_MUTEX: u32 = MUSL_WAITERS | 16;

/// Whether a futex whose words say nothing may be a lock's, so that its caller is worth asking for.
pub(crate) fn may_be_lock(futex: &Futex) -> bool {
    match futex.operation {
        // glibc's locks, whose priority ceiling may stand above 19 bits, and Go's; parking_lot's, which sleeps with 1 in a word of
        // the thread's own; musl's, whose highest bit says that somebody sleeps.
        Operation::Wait => {
            futex.value == 1 || futex.value & 0x7_ffff == 2 || futex.value & MUSL_WAITERS != 0
        }
        // Rust's mutex, and its rwlock, whose state has one of its highest bits set for those who sleep.
        Operation::WaitBitset => {
            futex.value == 2
                || futex.value == 3
                || !futex.realtime && futex.value != u32::MAX && futex.value >= 1 << 30
        }
        Operation::LockPi => true,
        Operation::RequeuePi | Operation::Any => false,
    }
}

/// By the functions on the waiter's stack, leaf first; `word`: what the futex holds now.
pub(crate) fn by_callers<'a>(
    futex: &Futex,
    word: Option<u32>,
    functions: impl Iterator<Item = &'a str>,
) -> Class {
    if futex.operation == Operation::LockPi {
        return Class::PiMutex;
    }
    match waited_in(functions).map(Class::from) {
        Some(known) if known != Class::LibraryLock => known,
        _ if futex.operation == Operation::Wait
            && futex.value == MUSL_MUTEX
            && word == Some(MUSL_MUTEX) =>
        {
            Class::Mutex
        }
        // What is left with a 2 that still stands is one of the C library's own locks.
        _ if futex.operation == Operation::Wait && futex.value == 2 && word == Some(2) => {
            Class::LibraryLock
        }
        _ => Class::Event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(operation: Operation, value: u32, functions: &[&str]) -> Class {
        let futex = Futex {
            operation,
            address: 0x1000,
            value,
            private: true,
            realtime: false,
            timed: false,
        };
        assert!(may_be_lock(&futex));
        by_callers(&futex, Some(value), functions.iter().copied())
    }

    #[test]
    fn callers_tell_locks_from_events() {
        let rust = [
            "syscall",
            "std::sys::pal::unix::futex::futex_wait",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "app::worker",
        ];
        assert_eq!(class(Operation::WaitBitset, 2, &rust), Class::RustMutex);
        let condvar = [
            "syscall",
            "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout",
        ];
        assert_eq!(class(Operation::WaitBitset, 2, &condvar), Class::Event);
        let condvar = [
            "syscall",
            "parking_lot_core::parking_lot::park",
            "parking_lot::condvar::Condvar::wait_until_internal",
        ];
        assert_eq!(class(Operation::Wait, 1, &condvar), Class::Event);
        let c11 = ["__lll_lock_wait", "__mtx_lock", "main"];
        assert_eq!(class(Operation::Wait, 2, &c11), Class::Mutex);
        let parked = [
            "syscall",
            "parking_lot_core::parking_lot::park",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "app::worker",
        ];
        assert_eq!(class(Operation::Wait, 1, &parked), Class::ParkingLot);
        let malloc = ["__lll_lock_wait_private", "malloc", "app::worker"];
        assert_eq!(class(Operation::Wait, 2, &malloc), Class::LibraryLock);
        let mutex = ["__lll_lock_wait", "___pthread_mutex_lock", "main"];
        assert_eq!(class(Operation::Wait, 2, &mutex), Class::Mutex);
        assert_eq!(class(Operation::Wait, 1, &["poll_loop"]), Class::Event);
        let ceiling = ["__lll_lock_wait", "__pthread_mutex_lock_full", "main"];
        assert_eq!(class(Operation::Wait, 7 << 19 | 2, &ceiling), Class::Mutex);
        // musl's, whose stacks may have no names.
        assert_eq!(class(Operation::Wait, 0x8000_0010, &[]), Class::Mutex);
        let read = ["__timedwait_cp", "__pthread_rwlock_timedrdlock"];
        let written = class(Operation::Wait, 0xffff_ffff, &read);
        assert_eq!(written, Class::RwLockRead);
    }
}
