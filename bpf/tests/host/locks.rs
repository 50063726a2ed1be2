//! Threads under lockstat's programs that wait for kernel locks at random: nested, spinning and then blocked, with ends unseen.

use std::ffi::c_void;

use fastrand::Rng;
use oracle::{Event, Kind, Logs};

use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

/// Opening of the window, ns.
const BEGIN_NS: u64 = 1_000;
/// `LCB_F_SPIN`, `LCB_F_MUTEX` of include/trace/events/lock.h
const SPIN: u32 = 1;
const MUTEX: u32 = 32;
/// Flags of those that only spin (`LCB_F_READ` 2, `LCB_F_WRITE` 4), and of those that sleep.
const SPINNING: [u32; 3] = [SPIN, SPIN | 2, SPIN | 4];
const SLEEPING: [u32; 4] = [2, 4, MUTEX, SPIN | MUTEX];
const LOCKS_OF_EACH: usize = 2;
/// Waits that begin within one another, and what is left of those whose end was not seen.
const DEEPEST: usize = 4;
/// The idle tasks of this many CPUs come first.
pub(crate) const CPUS: usize = 3;
const THREADS: usize = 9;

pub(crate) struct Lock {
    pub(crate) address: Pointer,
    pub(crate) flags: u32,
    /// An idle task's CPU.
    cpu: Option<u32>,
}

/// One that lasts.
struct Wait {
    lock: usize,
    is_spinning: bool,
    part_ns: u64,
}

pub(crate) struct Thread {
    /// In the log: the kernel calls all idle tasks 0.
    pub(crate) tid: u32,
    pub(crate) task: Pointer,
    cpu: u32,
    waits: Vec<Wait>,
    /// Locks of waits whose end was not seen, below the oldest wait that lasts.
    stale: Vec<usize>,
}

/// Counters of a lock beside its waits, as the programs must have them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts {
    /// Spinning, ns.
    pub(crate) spin_ns: u64,
    pub(crate) given_up: u64,
    /// Not over at the window's end.
    pub(crate) open: u64,
}

pub(crate) struct Locks {
    pub(crate) host: Host,
    rng: Rng,
    now: u64,
    pub(crate) threads: Vec<Thread>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) parts: Vec<Parts>,
    /// Ends that no program was shown.
    pub(crate) hidden: u64,
    /// Ends whose beginning no program was shown.
    pub(crate) unbegun: u64,
    events: Vec<Event>,
}

impl Locks {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut locks = Vec::new();
        for flags in SPINNING.into_iter().chain(SLEEPING) {
            for place in 0..=CPUS {
                let cpu = (place < CPUS).then_some(place as u32);
                for _ in 0..LOCKS_OF_EACH {
                    let address = host.ask::<Pointer>("host_lock", ());
                    locks.push(Lock {
                        address,
                        flags,
                        cpu,
                    });
                }
            }
        }
        let thread = |at: usize| Thread {
            tid: at as u32,
            task: {
                let tid = if at < CPUS { 0 } else { at as u32 };
                host.ask::<Pointer>("host_thread", (tid,))
            },
            cpu: (at % CPUS) as u32,
            waits: Vec::new(),
            stale: Vec::new(),
        };
        let threads: Vec<Thread> = (0..CPUS + THREADS).map(thread).collect();
        host.tell("host_set", (BEGIN_NS, 0_u32, threads[0].task));
        host.tell("host_begin", (BEGIN_NS,));
        for thread in &threads[CPUS..] {
            host.tell("host_seed", (thread.task,));
        }
        Self {
            parts: vec![Parts::default(); locks.len()],
            host,
            rng: Rng::with_seed(seed),
            now: BEGIN_NS,
            threads,
            locks,
            hidden: 0,
            unbegun: 0,
            events: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self) {
        self.now += self.rng.u64(1..2_000_000);
        let at = self.rng.usize(0..self.threads.len());
        let depth = self.threads[at].waits.len();
        let goes_on = self.threads[at]
            .waits
            .last()
            .is_some_and(|wait| self.locks[wait.lock].flags & MUTEX != 0);
        match self.rng.u32(0..8) {
            0..=2 if goes_on => self.goes_on(at),
            3..=6 if depth + self.threads[at].stale.len() < DEEPEST => self.begins(at),
            _ if depth > 0 => self.ends(at),
            _ => self.begins(at),
        }
    }

    fn set(&self, at: usize) {
        let thread = &self.threads[at];
        self.host
            .tell("host_set", (self.now, thread.cpu, thread.task));
    }

    fn note(&mut self, at: usize, kind: Kind) {
        let (ns, cpu) = (self.now, self.threads[at].cpu);
        self.events.push(Event { ns, cpu, kind });
    }

    fn tell_begin(&mut self, at: usize, lock: usize, flags: u32) {
        let kind = Kind::Contention {
            tid: self.threads[at].tid,
            lock: self.locks[lock].address as u64,
            is_mutex: flags & MUTEX != 0,
        };
        self.note(at, kind);
        self.set(at);
        let begin = [self.locks[lock].address as u64, flags.into()];
        self.host.run("contention_begin", &begin);
    }

    /// Nobody sleeps who spins for a lock, nor in an interrupt, nor waits for a lock twice.
    fn begins(&mut self, at: usize) {
        let thread = &self.threads[at];
        let has_to_spin = at < CPUS || thread.waits.iter().any(|wait| self.is_spinlock(wait.lock));
        let cpu = (at < CPUS).then_some(at as u32);
        let is_taken = |lock: &usize| {
            let waits_for_it = |wait: &Wait| wait.lock == *lock;
            thread.stale.contains(lock) || thread.waits.iter().any(waits_for_it)
        };
        let fits = |lock: &usize| {
            let may_wait = !has_to_spin || self.is_spinlock(*lock);
            self.locks[*lock].cpu == cpu && may_wait && !is_taken(lock)
        };
        let fitting: Vec<usize> = (0..self.locks.len()).filter(fits).collect();
        let lock = self.rng.choice(fitting).expect("more locks than waits");
        let flags = self.locks[lock].flags;
        let is_spinning = flags & SPIN != 0;
        self.threads[at].waits.push(Wait {
            lock,
            is_spinning,
            part_ns: self.now,
        });
        self.tell_begin(at, lock, flags);
    }

    fn is_spinlock(&self, lock: usize) -> bool {
        SPINNING.contains(&self.locks[lock].flags)
    }

    fn end_part(&mut self, wait: &Wait, end_ns: u64) {
        if wait.is_spinning {
            self.parts[wait.lock].spin_ns += end_ns - wait.part_ns;
        }
    }

    /// A mutex: spinning, then asleep, then spinning.
    fn goes_on(&mut self, at: usize) {
        let wait = self.threads[at].waits.pop().expect("a wait");
        self.end_part(&wait, self.now);
        let is_spinning = !wait.is_spinning;
        let flags = MUTEX | if is_spinning { SPIN } else { 0 };
        self.threads[at].waits.push(Wait {
            lock: wait.lock,
            is_spinning,
            part_ns: self.now,
        });
        self.tell_begin(at, wait.lock, flags);
    }

    fn ends(&mut self, at: usize) {
        let wait = self.threads[at].waits.pop().expect("a wait");
        let is_outermost = self.threads[at].waits.is_empty();
        if !is_outermost && self.is_spinlock(wait.lock) && self.rng.u32(0..8) == 0 {
            self.hidden += 1;
            self.threads[at].stale.push(wait.lock);
            return;
        }
        let result = if self.rng.u32(0..4) == 0 { -4 } else { 0 };
        self.end_part(&wait, self.now);
        self.parts[wait.lock].given_up += u64::from(result != 0);
        self.tell_end(at, wait.lock, result);
        // The programs see that what began within it is over.
        if is_outermost {
            self.threads[at].stale.clear();
            // An end of which no program has seen the beginning.
            if self.rng.u32(0..8) == 0 {
                self.now += 1;
                self.unbegun += 1;
                self.tell_end(at, wait.lock, 0);
            }
        }
    }

    fn tell_end(&mut self, at: usize, lock: usize, result: i32) {
        let (tid, address) = (self.threads[at].tid, self.locks[lock].address);
        self.note(
            at,
            Kind::Contended {
                tid,
                lock: address as u64,
            },
        );
        self.set(at);
        let result = i64::from(result).cast_unsigned();
        self.host.run("contention_end", &[address as u64, result]);
    }

    /// The window closes by the clock; half of the threads go on before the iterator comes by. The model has waits that are over.
    pub(crate) fn close(&mut self) -> Logs {
        for at in 0..self.threads.len() {
            // Down to the outermost, so that nothing is left of those without end.
            while self.threads[at].waits.len() > 1 || !self.threads[at].stale.is_empty() {
                self.now += 1;
                self.ends(at);
            }
        }
        self.now += 10;
        let end_ns = self.now;
        self.host.tell("host_end", (end_ns,));
        for at in 0..self.threads.len() {
            let Some(wait) = self.threads[at].waits.pop() else {
                continue;
            };
            self.now = end_ns;
            self.end_part(&wait, end_ns);
            self.parts[wait.lock].open += 1;
            // An idle task is no iterator's.
            if at < CPUS || at % 2 == 0 {
                self.now += 7;
                self.tell_end(at, wait.lock, -4);
                self.events.last_mut().expect("this end").ns = end_ns;
            } else {
                let (tid, lock) = (self.threads[at].tid, self.locks[wait.lock].address as u64);
                self.note(at, Kind::Contended { tid, lock });
                self.now += 7;
                self.set(at);
                self.host.tell("host_close", (self.threads[at].task,));
            }
        }
        Logs {
            before: self.events.clone(),
            after: self.events.clone(),
            missed: 0,
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let tasks = self.threads.iter().map(|thread| thread.task);
        for pointer in tasks.chain(self.locks.iter().map(|lock| lock.address)) {
            self.host.tell("host_free_task", (pointer,));
        }
    }
}
