//! The futex call that a thread is asleep in, from its system call's arguments.

use super::thread::Thread;
use crate::lockstat::futex::{
    BY_CALL, BY_NAME, Call, Class, Evidence, Operation, Place, Rules, classify,
};

/// A futex wait in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Futex {
    pub(crate) operation: Operation,
    pub(crate) address: u64,
    /// What the word held when the wait began; nothing for PI locks.
    pub(crate) value: u32,
    /// Only the threads of one address space can end it.
    pub(crate) private: bool,
    /// FUTEX_CLOCK_REALTIME is set: glibc always does so on waits that may have an end.
    pub(crate) realtime: bool,
    /// It ends by itself.
    pub(crate) timed: bool,
}

/// Numbers of the system calls.
const FUTEX: i16 = libc::SYS_futex as i16;
/// The same for i386 and ARM.
const FUTEX_COMPAT: i16 = 240;
const FUTEX_TIME64_COMPAT: i16 = 422;
/// The same everywhere.
const FUTEX_WAITV: i16 = 449;
const FUTEX_WAIT: i16 = 455;

const PRIVATE: u64 = 0x80;
const CLOCK_REALTIME: u64 = 0x100;
/// Of the newer calls.
const FUTEX2_PRIVATE: u64 = 0x80;

impl Futex {
    /// The futex that `thread` sleeps on, if that is what it does.
    pub(crate) fn of(thread: &Thread) -> Option<Self> {
        if !thread.is_asleep() {
            return None;
        }
        let [address, second, third, fourth, fifth, _] = thread.arguments;
        match (thread.wait.syscall, thread.compat) {
            (FUTEX, false) | (FUTEX_COMPAT | FUTEX_TIME64_COMPAT, true) => {
                Self::classic(address, second, third, fourth)
            }
            (FUTEX_WAITV, _) => Some(Self {
                operation: Operation::Any,
                address,
                value: 0,
                private: false,
                realtime: false,
                timed: fourth != 0,
            }),
            (FUTEX_WAIT, _) => Some(Self {
                operation: Operation::WaitBitset,
                address,
                value: low(second),
                private: fourth & FUTEX2_PRIVATE != 0,
                realtime: false,
                timed: fifth != 0,
            }),
            _ => None,
        }
    }

    fn classic(address: u64, flags: u64, value: u64, timeout: u64) -> Option<Self> {
        let operation = match flags & 0x7f {
            number @ (0 | 6 | 9 | 11 | 13) => Operation::from(number as u8),
            _ => return None,
        };
        Some(Self {
            operation,
            address,
            value: low(value),
            private: flags & PRIVATE != 0,
            realtime: flags & CLOCK_REALTIME != 0,
            timed: timeout != 0,
        })
    }
}

fn low(value: u64) -> u32 {
    (value & u64::from(u32::MAX)) as u32
}

const MUSL_WAITERS: u32 = 0x8000_0000;

impl Futex {
    /// Looks whether a futex whose words say nothing may be a lock's, so that its caller is worth asking for.
    pub(crate) fn may_be_lock(&self) -> bool {
        match self.operation {
            // glibc's locks, whose priority ceiling may stand above 19 bits, and Go's; parking_lot's, which sleeps with 1 in a word
            // of the thread's own; musl's, whose highest bit says that somebody sleeps.
            Operation::Wait => {
                self.value == 1 || self.value & 0x7_ffff == 2 || self.value & MUSL_WAITERS != 0
            }
            // Rust's mutex, and its rwlock, whose state has one of its highest bits set for those who sleep.
            Operation::WaitBitset => {
                self.value == 2
                    || self.value == 3
                    || !self.realtime && self.value != u32::MAX && self.value >= 1 << 30
            }
            Operation::LockPi => true,
            Operation::RequeuePi | Operation::Requeued | Operation::Any => false,
        }
    }

    /// Judges by the functions on the waiter's stack, leaf first; `word`: what it holds now. Without the name of a lock that
    /// anybody may take, the word has to stand still.
    pub(crate) fn class<'a>(
        &self,
        word: Option<u32>,
        functions: impl Iterator<Item = Call<'a>>,
    ) -> Class {
        let evidence = Evidence {
            operation: self.operation,
            shared: !self.private,
            realtime: self.realtime,
            value: self.value,
            place: Place::Nowhere,
        };
        let verdict = classify(Rules::ours(), &evidence, functions);
        let (class, confidence) = (verdict.meaning.class, verdict.confidence);
        let stands = word == Some(self.value) || self.operation == Operation::LockPi;
        let is_named = confidence >= BY_NAME && class != Class::LibraryLock;
        if is_named || confidence >= BY_CALL && stands {
            class
        } else {
            Class::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_and_rust_call_as_they_do() {
        let mutex = Futex::classic(0x1000, 0x80, 2, 0).unwrap();
        assert_eq!(
            (mutex.operation, mutex.private, mutex.timed, mutex.value),
            (Operation::Wait, true, false, 2)
        );
        let rwlock = Futex::classic(0x1008, 0x189, 3, 0).unwrap();
        assert!(rwlock.operation == Operation::WaitBitset && rwlock.realtime && rwlock.private);
        let join = Futex::classic(0x1000, 0x109, 4711, 0).unwrap();
        assert!(!join.private);
        // The upper half of a register is no part of the argument.
        let pi = Futex::classic(0x1000, 0x86, 7 << 32, 1).unwrap();
        assert!(pi.operation == Operation::LockPi && pi.timed && pi.value == 0);
        assert_eq!(Futex::classic(0x1000, 0x81, 1, 0), None, "FUTEX_WAKE");
    }

    fn class(operation: Operation, value: u32, functions: &[&str]) -> Class {
        let futex = Futex {
            operation,
            address: 0x1000,
            value,
            private: true,
            realtime: false,
            timed: false,
        };
        assert!(futex.may_be_lock());
        futex.class(Some(value), functions.iter().map(|name| (*name, None)))
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
        assert_eq!(class(Operation::WaitBitset, 2, &condvar), Class::Cond);
        let condvar = [
            "syscall",
            "parking_lot_core::parking_lot::park",
            "parking_lot::condvar::Condvar::wait_until_internal",
        ];
        assert_eq!(class(Operation::Wait, 1, &condvar), Class::Cond);
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
        assert_eq!(class(Operation::Wait, 1, &["poll_loop"]), Class::Unknown);
        let ceiling = ["__lll_lock_wait", "__pthread_mutex_lock_full", "main"];
        assert_eq!(class(Operation::Wait, 7 << 19 | 2, &ceiling), Class::Mutex);
        // musl's, whose stacks may have no names.
        assert_eq!(class(Operation::Wait, 0x8000_0010, &[]), Class::Mutex);
        let read = ["__timedwait_cp", "__pthread_rwlock_timedrdlock"];
        let written = class(Operation::Wait, 0xffff_ffff, &read);
        assert_eq!(written, Class::RwlockRead);
    }
}
