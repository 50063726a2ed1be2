//! Threads under lockstat's programs that call futex(2) and its younger kin at random, and an account of what they did.
//!
//! A wait lasts from the moment at which its thread leaves its CPU in the call to the call's return. It is ended by a call that
//! wakes, or by an interrupt: a timeout or a signal. Some sleeps are hidden from the programs, as some kernels hide some.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::futex_account::{Row, Wait};
use crate::futex_calls::{NO_CALL, OTHER, Pointer, Programs, WAITS, WAKES, futex_call};
use crate::host::Host;

/// Opening of the window, ns.
const BEGIN_NS: u64 = 1_000;
const PROCESSES: u32 = 3;
const THREADS_OF_EACH: u32 = 4;
const LOCKS: usize = 6;
/// States of a thread that sleeps.
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;
const EAGAIN: i64 = -11;
const ETIMEDOUT: i64 = -110;
const ERESTARTSYS: i64 = -512;

#[path = "futex_wakeups.rs"]
mod wakeups;

#[derive(Clone, Copy)]
enum Call {
    None,
    Other,
    Wake {
        lock: usize,
        woken: i64,
    },
    Wait {
        lock: usize,
        operation: u8,
        /// The wait as the programs see it.
        wait: Option<Wait>,
        /// It slept without their seeing it.
        is_hidden: bool,
        /// A call has woken it: it will return.
        is_woken: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Running,
    Queued,
    Asleep,
}

struct Thread {
    task: Pointer,
    tid: u32,
    tgid: u32,
    place: Place,
    call: Call,
}

pub(crate) struct Futexes {
    pub(crate) programs: Programs,
    rng: Rng,
    now: u64,
    idle: Pointer,
    threads: Vec<Thread>,
    pub(crate) locks: Vec<Pointer>,
    rows: BTreeMap<(usize, u8, u32), Row>,
    /// Calls that slept unseen.
    pub(crate) unseen: u64,
    /// Waits whose end was seen.
    pub(crate) returned: u64,
    is_over: bool,
}

impl Futexes {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let programs = Programs::new(host);
        let locks = (0..LOCKS).map(|_| programs.lock()).collect();
        let mut world = Self {
            idle: programs.thread(0, 0),
            programs,
            rng: Rng::with_seed(seed),
            now: BEGIN_NS,
            threads: Vec::new(),
            locks,
            rows: BTreeMap::new(),
            unseen: 0,
            returned: 0,
            is_over: false,
        };
        for at in 0..PROCESSES * THREADS_OF_EACH {
            let (tid, tgid) = (100 + at, 100 + at % PROCESSES);
            world.threads.push(Thread {
                task: world.programs.thread(tid, tgid),
                tid,
                tgid,
                place: Place::Running,
                call: Call::None,
            });
        }
        world.set(None);
        world.programs.begin(BEGIN_NS);
        for at in 0..world.threads.len() {
            // Some wait already: of these waits as much counts as is in the window.
            if at % 4 == 3 {
                let lock = world.rng.usize(0..LOCKS);
                world.begin_wait(at, lock);
                let Call::Wait { wait, .. } = &mut world.threads[at].call else {
                    unreachable!()
                };
                *wait = Some(Wait::at(BEGIN_NS));
                world.place(at, Place::Asleep);
            } else {
                world.asks(at, NO_CALL, [0; 6]);
                world.place(at, Place::Running);
            }
            world.set(None);
            world.programs.seed(world.threads[at].task);
        }
        world
    }

    /// Every other lock lies in memory that processes share.
    pub(crate) fn is_shared(lock: usize) -> bool {
        lock % 2 == 1
    }

    pub(crate) fn all_threads(&self) -> Vec<(u32, u32)> {
        self.threads
            .iter()
            .map(|thread| (thread.tid, thread.tgid))
            .collect()
    }

    /// Rows of every lock, operation and process, those without waits included.
    pub(crate) fn rows(&self) -> Vec<((usize, u8, u32), Row)> {
        let mut all = Vec::new();
        for lock in 0..LOCKS {
            for operation in WAITS {
                for process in 0..PROCESSES {
                    let key = (lock, operation, 100 + process);
                    let row = self.rows.get(&key).map(Row::copy).unwrap_or_default();
                    all.push((key, row));
                }
            }
        }
        all
    }

    /// Time, CPU and who is current; `None`: the idle task.
    fn set(&self, current: Option<usize>) {
        let (cpu, task) = match current {
            Some(at) => (at as u32 % 8, self.threads[at].task),
            None => (0, self.idle),
        };
        self.programs.set(self.now, cpu, task);
    }

    fn place(&mut self, at: usize, place: Place) {
        self.threads[at].place = place;
        let (queued, runs) = (place == Place::Queued, place == Place::Running);
        self.programs.state(self.threads[at].task, queued, runs);
    }

    fn asks(&self, at: usize, number: i64, arguments: [u64; 6]) {
        self.programs.asks(self.threads[at].task, number, arguments);
    }

    pub(crate) fn step(&mut self) {
        self.now += self.rng.u64(1..2_000_000);
        let at = self.rng.usize(0..self.threads.len());
        match (self.threads[at].place, self.threads[at].call) {
            (Place::Queued, _) => self.runs(at),
            (Place::Asleep, _) => self.interrupt(at),
            (Place::Running, Call::None) => self.acts(at),
            (Place::Running, Call::Other) => match self.rng.u32(0..3) {
                0 => self.sleeps(at, false),
                _ => self.leaves_call(at),
            },
            (Place::Running, Call::Wake { lock, .. }) => match self.rng.u32(0..4) {
                0 => self.is_preempted(at),
                1 => self.returns(at),
                _ => self.wakes(at, lock),
            },
            (
                Place::Running,
                Call::Wait {
                    is_woken,
                    is_hidden,
                    wait,
                    ..
                },
            ) => match self.rng.u32(0..6) {
                0 => self.is_preempted(at),
                1..=3 if !is_woken => self.sleeps(
                    at,
                    wait.is_none() && !is_hidden && self.now.is_multiple_of(7),
                ),
                _ => self.returns(at),
            },
        }
    }

    /// A thread between calls.
    fn acts(&mut self, at: usize) {
        let lock = self.rng.usize(0..LOCKS);
        match self.rng.u32(0..10) {
            0..=3 => {
                self.begin_wait(at, lock);
                self.enters(at);
            }
            4..=6 => {
                let operation = *self.rng.choice(&WAKES).expect("some");
                self.asks_futex(at, lock, operation);
                self.threads[at].call = Call::Wake { lock, woken: 0 };
                self.enters(at);
            }
            7 => {
                self.asks(at, OTHER, [0; 6]);
                self.threads[at].call = Call::Other;
                self.sleeps(at, false);
            }
            8 => self.is_preempted(at),
            _ => self.is_replaced(at),
        }
    }

    fn begin_wait(&mut self, at: usize, lock: usize) {
        let operation = *self.rng.choice(&WAITS).expect("some");
        self.asks_futex(at, lock, operation);
        self.threads[at].call = Call::Wait {
            lock,
            operation,
            wait: None,
            is_hidden: false,
            is_woken: false,
        };
    }

    /// Puts a futex call into the thread's registers.
    fn asks_futex(&mut self, at: usize, lock: usize, operation: u8) {
        let (number, arguments) = futex_call(self.locks[lock], Self::is_shared(lock), operation);
        self.asks(at, number, arguments);
    }

    fn enters(&mut self, at: usize) {
        let (lock, operation) = match self.threads[at].call {
            Call::Wait {
                lock, operation, ..
            } => (lock, operation),
            _ => return,
        };
        let (number, arguments) = futex_call(self.locks[lock], Self::is_shared(lock), operation);
        if number == 0 {
            self.set(Some(at));
            self.programs.enters(arguments);
        }
    }

    fn leaves_call(&mut self, at: usize) {
        self.threads[at].call = Call::None;
        self.asks(at, NO_CALL, [0; 6]);
    }

    /// Leaves its CPU; the programs are shown it unless `is_hidden`.
    fn switches_out(&mut self, at: usize, runnable: bool, is_hidden: bool) {
        let (task, idle) = (self.threads[at].task, self.idle);
        let state = match self.threads[at].call {
            // Some were about to sleep, and would not have been put off the queue.
            Call::Wait { .. } if runnable && self.now.is_multiple_of(2) => INTERRUPTIBLE,
            _ if runnable => 0,
            Call::Other if self.now.is_multiple_of(2) => UNINTERRUPTIBLE,
            _ => INTERRUPTIBLE,
        };
        self.set(Some(at));
        self.programs.leaves(task, runnable);
        // It is off its queue, and has its CPU until the switch is over.
        if !is_hidden {
            self.programs.switch(runnable, task, idle, state);
        }
        self.place(
            at,
            if runnable {
                Place::Queued
            } else {
                Place::Asleep
            },
        );
    }

    fn sleeps(&mut self, at: usize, hide: bool) {
        self.switches_out(at, false, hide);
        let now = self.now;
        if let Call::Wait {
            wait, is_hidden, ..
        } = &mut self.threads[at].call
        {
            *is_hidden |= hide;
            if !hide {
                wait.get_or_insert(Wait::at(now));
            }
        }
    }

    fn is_preempted(&mut self, at: usize) {
        self.switches_out(at, true, false);
        let now = self.now;
        if let Call::Wait {
            wait: Some(wait), ..
        } = &mut self.threads[at].call
        {
            wait.queued_ns = Some(now);
        }
    }

    /// Gets a CPU.
    fn runs(&mut self, at: usize) {
        let (task, idle, now) = (self.threads[at].task, self.idle, self.now);
        self.set(None);
        self.programs.switch(false, idle, task, 0);
        self.place(at, Place::Running);
        if let Call::Wait {
            wait: Some(wait), ..
        } = &mut self.threads[at].call
        {
            wait.run_queue_ns += wait.queued_ns.take().map_or(0, |since| now - since);
        }
    }

    /// A futex call returns.
    fn returns(&mut self, at: usize) {
        let ret = match self.threads[at].call {
            Call::Wake { woken, .. } => woken,
            Call::Wait { is_woken: true, .. } if self.rng.u32(0..8) > 0 => 0,
            Call::Wait {
                wait: None,
                is_hidden: false,
                ..
            } => *self
                .rng
                .choice(&[0, EAGAIN, ETIMEDOUT, ERESTARTSYS])
                .expect("some"),
            _ => *self.rng.choice(&[ETIMEDOUT, ERESTARTSYS]).expect("some"),
        };
        self.set(Some(at));
        self.programs.returns(ret);
        if let Call::Wait {
            lock,
            operation,
            wait,
            is_hidden,
            ..
        } = self.threads[at].call
            && !self.is_over
        {
            let key = (lock, operation, self.threads[at].tgid);
            let tid = self.threads[at].tid;
            let row = self.rows.entry(key).or_default();
            match wait {
                Some(wait) => {
                    row.waits.push(wait.counted(tid, self.now, ret));
                    self.returned += 1;
                }
                None if is_hidden => self.unseen += 1,
                None => row.raced += u64::from(ret != ERESTARTSYS),
            }
        }
        self.leaves_call(at);
    }

    /// The thread ends, and another one gets its number.
    fn is_replaced(&mut self, at: usize) {
        let Thread {
            task, tid, tgid, ..
        } = self.threads[at];
        let parent = self.threads[(at + 1) % self.threads.len()].task;
        self.programs.free_task(task);
        let made = self.programs.thread(tid, tgid);
        self.threads[at].task = made;
        self.asks(at, NO_CALL, [0; 6]);
        self.set(Some((at + 1) % self.threads.len()));
        self.programs.fork(parent, made);
        self.place(at, Place::Queued);
    }
}
