//! Calls of threads: which one, and its arguments.

use super::{Call, Futexes, LOCKS, WAIT2, WAITS, WAITV, Waiting};
use crate::futex_account::Wait;
use crate::futex_calls::{EXIT, EXIT_GROUP, NO_CALL};
use crate::futex_locks::PI_WAITS;

/// `FUTEX_PRIVATE_FLAG` of include/uapi/linux/futex.h
const PRIVATE: u64 = 0x80;
/// `FUTEX_CLOCK_REALTIME` of the same
const REALTIME: u64 = 0x100;
/// The numbers of futex_waitv(2), futex_wake(2), futex_wait(2) and futex_requeue(2).
const NUMBER_OF_WAITV: i64 = 449;
const NUMBER_OF_WAKE: i64 = 454;
const NUMBER_OF_WAIT: i64 = 455;
const NUMBER_OF_REQUEUE: i64 = 456;
const FUTEX: i64 = 0;
/// `FUTEX_WAKE`, `FUTEX_WAKE_BITSET`, `FUTEX_UNLOCK_PI`; `FUTEX_WAKE_OP`; `FUTEX_REQUEUE`, `FUTEX_CMP_REQUEUE`, `FUTEX_CMP_REQUEUE_PI`
const WAKES: [u64; 3] = [1, 10, 7];
const WAKE_OP: u64 = 5;
const REQUEUES: [u64; 3] = [3, 4, 12];

impl Futexes {
    /// Puts a call into the thread's registers.
    pub(super) fn asks(&self, at: usize, number: i64, arguments: [u64; 6]) {
        let (task, is_compat) = (self.threads[at].task, self.is_compat(at));
        self.programs.asks(task, number, arguments, is_compat);
    }

    fn private(&self, lock: usize) -> u64 {
        if self.locks[lock].is_shared {
            0
        } else {
            PRIVATE
        }
    }

    /// A thread's array of futexes, with values that some kernels call for.
    fn array(&self, at: usize, locks: &[usize]) -> u64 {
        let array = self.arrays[at].cast::<u64>();
        for (place, lock) in locks.iter().enumerate() {
            let value = u64::from(self.locks[*lock].value());
            let entry = [value, self.locks[*lock].address(), self.private(*lock) | 2];
            // SAFETY: a page of the host's, longer than all entries.
            unsafe { array.add(3 * place).cast::<[u64; 3]>().write(entry) };
        }
        array as u64
    }

    /// futex(2) has a program at its entry.
    fn calls_futex(&mut self, at: usize, arguments: [u64; 6], is_begun: bool) {
        self.asks(at, FUTEX, arguments);
        if is_begun {
            self.set(Some(at));
            self.programs.enters(arguments);
        }
    }

    /// A thread begins to wait, if it is not found in its call.
    pub(super) fn waits(&mut self, at: usize) {
        let mut waiting = self.waiting();
        self.calls_wait(at, &waiting, true);
        if PI_WAITS.contains(&waiting.operation) && !self.is_over && !self.is_unseen(at) {
            let mut wait = Wait::at(self.key(at, &waiting), self.threads[at].tid, self.now);
            wait.slept_ns = None;
            if self.has_vpid {
                self.reads_owner(at, &waiting, &mut wait);
            }
            waiting.wait = Some(wait);
        }
        self.threads[at].call = Call::Wait(waiting);
    }

    pub(super) fn begins_to_wait(&mut self, at: usize) -> Box<Waiting> {
        let waiting = self.waiting();
        self.calls_wait(at, &waiting, false);
        waiting
    }

    /// One that may follow on a call whose return nobody has seen.
    pub(super) fn waits_by_futex(&mut self, at: usize) {
        let mut waiting = self.waiting();
        (waiting.operation, waiting.is_realtime) = (WAITS[0], false);
        waiting.locks.truncate(1);
        self.calls_wait(at, &waiting, true);
        self.threads[at].call = Call::Wait(waiting);
    }

    fn waiting(&mut self) -> Box<Waiting> {
        let operation = match self.rng.u32(0..8) {
            0..=3 => *self.rng.choice(&WAITS).expect("some"),
            4..=5 => *self.rng.choice(&PI_WAITS).expect("some"),
            6 => WAIT2,
            _ => WAITV,
        };
        let count = if operation == WAITV {
            self.rng.usize(1..4)
        } else {
            1
        };
        let locks: Vec<_> = (0..count).map(|_| self.rng.usize(0..LOCKS)).collect();
        // Some expect what is not there, and learn of it when they ask.
        let value = match self.rng.u32(0..12) {
            0 => 2,
            1 => 3,
            2 => 5,
            _ => self.locks[locks[0]].value(),
        };
        let values = match operation {
            WAITV => locks.iter().map(|lock| self.locks[*lock].value()).collect(),
            _ => vec![value],
        };
        Box::new(Waiting {
            values,
            locks,
            moved_to: None,
            operation,
            is_realtime: ![WAIT2, WAITV].contains(&operation) && self.rng.u32(0..4) == 0,
            wait: None,
            is_hidden: false,
            woken: None,
            is_restarted: false,
        })
    }

    fn calls_wait(&mut self, at: usize, waiting: &Waiting, is_begun: bool) {
        let lock = waiting.locks[0];
        let (address, private) = (self.locks[lock].address(), self.private(lock));
        let value = u64::from(waiting.values[0]);
        match waiting.operation {
            WAITV => {
                let array = self.array(at, &waiting.locks);
                let count = waiting.locks.len() as u64;
                self.asks(at, NUMBER_OF_WAITV, [array, count, 0, 0, 1, 0]);
            }
            WAIT2 => {
                let arguments = [address, value, u64::MAX, private | 2, 0, 0];
                self.asks(at, NUMBER_OF_WAIT, arguments);
            }
            operation => {
                let clock = if waiting.is_realtime { REALTIME } else { 0 };
                let arguments = [
                    address,
                    u64::from(operation) | private | clock,
                    value,
                    0,
                    0,
                    u64::MAX,
                ];
                self.calls_futex(at, arguments, is_begun);
            }
        }
    }

    pub(super) fn begins_to_wake(&mut self, at: usize) {
        let mut locks = [self.rng.usize(0..LOCKS), self.rng.usize(0..LOCKS)];
        let own = (0..LOCKS).find(|lock| self.favourite(*lock) == at);
        locks[0] = own.filter(|_| self.rng.bool()).unwrap_or(locks[0]);
        let [one, other] = locks.map(|lock| self.locks[lock].address());
        let private = self.private(locks[0]);
        let mut to = None;
        let mut through = vec![locks[0]];
        match self.rng.u32(0..8) {
            0..=2 => {
                let operation = *self.rng.choice(&WAKES).expect("some");
                self.calls_futex(at, [one, operation | private, 7, 0, 0, 0], true);
            }
            3 => {
                through.push(locks[1]);
                self.calls_futex(at, [one, WAKE_OP | private, 1, 1, other, 0], true);
            }
            4 => self.asks(at, NUMBER_OF_WAKE, [one, u64::MAX, 1, private | 2, 0, 0]),
            5..=6 => {
                to = Some(locks[1]);
                let operation = *self.rng.choice(&REQUEUES).expect("some");
                self.calls_futex(at, [one, operation | private, 1, 99, other, 0], true);
            }
            _ => {
                to = Some(locks[1]);
                let array = self.array(at, &locks);
                self.asks(at, NUMBER_OF_REQUEUE, [array, 0, 1, 99, 0, 0]);
            }
        }
        let is_exit = self.rng.u32(0..16) == 0;
        if is_exit {
            (to, through) = (None, Vec::new());
            let number = *self.rng.choice(&[EXIT, EXIT_GROUP]).expect("some");
            self.asks(at, number, [0; 6]);
        }
        self.threads[at].call = Call::Wake {
            locks: through,
            to,
            is_exit,
            count: 0,
        };
    }

    pub(super) fn leaves_call(&mut self, at: usize) {
        self.threads[at].call = Call::None;
        self.asks(at, NO_CALL, [0; 6]);
    }
}
