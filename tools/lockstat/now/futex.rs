//! The futex call that a thread is asleep in, from its system call's arguments.

use super::thread::Thread;

/// What kind of wait was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// FUTEX_WAIT.
    Wait,
    /// FUTEX_WAIT_BITSET, and `futex_wait(2)`.
    WaitBitset,
    /// FUTEX_LOCK_PI, FUTEX_LOCK_PI2: the word is the owner's ID.
    LockPi,
    /// FUTEX_WAIT_REQUEUE_PI: a condition variable whose mutex is a PI mutex.
    RequeuePi,
    /// `futex_waitv(2)`: any of several.
    Any,
}

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
            0 => Operation::Wait,
            9 => Operation::WaitBitset,
            6 | 13 => Operation::LockPi,
            11 => Operation::RequeuePi,
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
}
