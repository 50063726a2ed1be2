//! Threads under lockstat's programs that wait for the kernel's locks at random: for owners who wait themselves, woken by others, within
//! one another, from before the window to behind its end; and idle tasks upon which interrupts do.

use std::ffi::CStr;

use fastrand::Rng;
use oracle::Event;

use crate::calling::{Place, Pointer, Programs, Wakers};
use crate::futex_account::{Book, Edge, Key, Wait};
use crate::host::Host;

#[path = "owner_calls.rs"]
mod calls;
#[path = "owner_ends.rs"]
mod ends;
#[path = "owner_intervals.rs"]
mod intervals;
#[path = "owner_locks.rs"]
mod locks;
#[path = "owner_log.rs"]
pub(crate) mod log;
#[path = "owner_others.rs"]
mod others;
#[path = "owner_waits.rs"]
mod waits;

use locks::{Lock, MUTEX, Names};

const THREADS: usize = 8;
/// This thread is no target.
const STRANGER: usize = THREADS;
/// Idle tasks of this many CPUs come last.
const IDLE: usize = 3;
/// Waits of one thread that are kept.
const DEEPEST: usize = 5;
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;
/// Fields and functions that some kernels have not.
const LACKED: [&CStr; 8] = [
    c"bpf_task_from_pid",
    c"bpf_get_kmem_cache",
    c"",
    c"",
    c"queue->rq",
    c"pages->invalidate_lock",
    c"named->d_u.d_alias",
    c"semaphore->last_holder",
];

/// A wait under way.
struct Waiting {
    lock: usize,
    wait: Wait,
    /// Its beginning, also if that was before the window.
    begin_ns: u64,
    is_spinning: bool,
    is_walked: bool,
}

impl Waiting {
    fn new(lock: usize, wait: Wait, begin_ns: u64) -> Self {
        Self {
            lock,
            wait,
            begin_ns,
            is_spinning: false,
            is_walked: false,
        }
    }
}

struct Thread {
    task: Pointer,
    tid: u32,
    tgid: u32,
    place: Place,
    waits: Vec<Waiting>,
    /// Something of it was seen, or is known to be new.
    is_known: bool,
    /// An interval has ended since the iterator came by.
    edge: Option<Edge>,
}

/// Losses that the programs count besides waits.
#[derive(Default)]
struct Lost {
    unended: u64,
    unbegun: u64,
    begun_before: u64,
    unwalked: u64,
    holders_unwalked: u64,
    names_full: u64,
}

pub(crate) struct Owners {
    pub(crate) programs: Programs,
    book: Book,
    named: Names,
    lost: Lost,
    rng: Rng,
    now: u64,
    /// Opening of the window, once that is known; its end.
    open_ns: Option<u64>,
    end_ns: Option<u64>,
    idle: Pointer,
    threads: Vec<Thread>,
    locks: Vec<Lock>,
    lacks: &'static CStr,
    /// Those that sleep for a lock before tracing begins are found.
    finds: bool,
    has_holder_stacks: bool,
    /// User and kernel stacks of wakers are asked for.
    has_stacks: [bool; 2],
    /// The current thread's place, a number.
    place: u64,
    is_taken: bool,
    is_without: bool,
    dice: u32,
    /// Wakers' records.
    wakers: Wakers,
    /// All that programs could see of waits.
    log: Vec<Event>,
}

impl Owners {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let programs = Programs { host };
        let mut rng = Rng::with_seed(seed);
        let lacks = rng.choice(LACKED).expect("some");
        programs.lacks(lacks);
        let mut world = Self {
            idle: programs.thread(0, 0),
            locks: locks::make(&programs),
            programs,
            book: Book::default(),
            named: Names::new(),
            lost: Lost::default(),
            now: 1_000,
            open_ns: None,
            end_ns: None,
            threads: Vec::new(),
            lacks,
            finds: rng.u32(0..8) > 0,
            has_holder_stacks: rng.bool(),
            has_stacks: [rng.bool(), rng.bool()],
            place: 0,
            is_taken: false,
            is_without: false,
            dice: 0,
            wakers: Wakers::default(),
            log: Vec::new(),
            rng,
        };
        let [user, kernel] = world.has_stacks;
        world
            .programs
            .begin(world.finds, world.has_holder_stacks, !user, !kernel);
        world.programs.state(world.idle, false, true);
        for at in 0..=THREADS {
            world.adds(10 + at as u32, 10 + at as u32 % 3);
            world.dress(at);
        }
        for _ in 0..IDLE {
            world.adds(0, 0);
        }
        for lock in 0..world.locks.len() {
            world.changes_hands(lock);
        }
        world.are_found();
        // These events are before the window.
        for _ in 0..world.rng.usize(0..300) {
            world.step();
        }
        world.opens();
        world
    }

    fn adds(&mut self, tid: u32, tgid: u32) {
        self.threads.push(Thread {
            task: self.programs.thread(tid, tgid),
            tid,
            tgid,
            place: Place::Running,
            waits: Vec::new(),
            is_known: false,
            edge: None,
        });
    }

    /// All that a thread has by its place.
    fn dress(&self, at: usize) {
        let task = self.threads[at].task;
        if let Some(lock) = self.memory_of(at) {
            self.programs.memory(task, self.locks[lock].page);
        }
        if let Some(lock) = self.queue_of(at) {
            let cpu = self.cpu_of(lock) as u32;
            self.programs.serves(task, self.locks[lock].page, cpu);
        }
        if let Some(lock) = self.pipe_of(at) {
            self.programs.reads_pipe(task, self.locks[lock].page);
        }
    }

    /// The window opens now, or in a while.
    fn opens(&mut self) {
        let open_ns = self.now + self.rng.u64(1..10_000_000);
        self.programs.open(open_ns);
        self.open_ns = Some(open_ns);
        for wait in self.threads.iter_mut().flat_map(|thread| &mut thread.waits) {
            wait.wait.begin_ns = wait.wait.begin_ns.max(open_ns);
        }
    }

    fn is_open_at(&self, now: u64) -> bool {
        self.open_ns.is_some_and(|open| now >= open) && self.end_ns.is_none_or(|end| now < end)
    }

    fn is_over(&self) -> bool {
        self.end_ns.is_some_and(|end| self.now >= end)
    }

    /// Time, CPU and who is current; `None`: the idle task.
    fn set(&mut self, current: Option<usize>) {
        let running = |at: usize| (at as u32 % 8, self.threads[at].task);
        let (cpu, task) = current.map_or((0, self.idle), running);
        self.programs.set(self.now, cpu, task);
        self.place = self.rng.u64(1..4);
        self.is_taken = self.rng.u32(0..32) == 0;
        self.is_without = self.rng.u32(0..32) == 0;
        self.dice = self.rng.u32(0..64);
        self.programs.at(self.place, self.is_taken);
        self.programs.roll(self.dice, self.is_without);
    }

    fn place(&mut self, at: usize, place: Place) {
        self.threads[at].place = place;
        self.programs.puts(self.threads[at].task, place);
    }

    pub(crate) fn fill(&mut self) {
        self.programs.fill();
        self.book.is_full = true;
    }

    pub(crate) fn step(&mut self) {
        // Some waits are too short for what costs.
        let longest_ns = *self.rng.choice(&[2_000, 30_000, 500_000]).expect("some");
        self.now += self.rng.u64(1..longest_ns);
        let at = self.anyone();
        self.acts_at(at);
        if self.rng.u32(0..32) == 0 {
            self.stranger_acts();
        }
    }

    /// A target, or an idle task.
    fn anyone(&mut self) -> usize {
        let at = self.rng.usize(0..THREADS + IDLE);
        at + usize::from(at >= STRANGER)
    }

    fn acts_at(&mut self, at: usize) {
        if at > STRANGER {
            return self.is_interrupted(at);
        }
        match self.threads[at].place {
            Place::Queued => self.runs(at),
            Place::Asleep => self.is_woken(at),
            Place::Running => match self.rng.u32(0..16) {
                0..=4 => self.begins(at),
                5..=7 => self.ends(at),
                8..=10 => self.sleeps(at),
                11 => self.leaves(at, true),
                12..=13 => {
                    let lock = self.rng.usize(0..self.locks.len());
                    self.changes_hands(lock);
                }
                14 if self.rng.u32(0..64) == 0 => {
                    self.programs.stall();
                    self.book.stalls();
                }
                14 => self.ends(at),
                _ if self.threads[at].waits.is_empty() => self.is_replaced(at),
                _ => self.ends(at),
            },
        }
    }

    /// A thread whose uppermost wait still spins does not sleep: that wait goes on first.
    fn sleeps(&mut self, at: usize) {
        if self.threads[at]
            .waits
            .last()
            .is_some_and(|top| top.is_spinning)
        {
            return self.goes_on(at);
        }
        self.leaves(at, false);
    }

    fn leaves(&mut self, at: usize, runnable: bool) {
        let state = match runnable {
            true if self.now.is_multiple_of(2) => INTERRUPTIBLE,
            true => 0,
            false => UNINTERRUPTIBLE,
        };
        self.drop_stale_spins(at);
        self.set(Some(at));
        let (task, idle) = (self.threads[at].task, self.idle);
        self.programs.leaves(task, runnable);
        self.programs
            .host
            .switch(runnable, [task, idle], Some(state));
        if runnable {
            self.is_queued(at);
        }
        self.place(at, Place::left(runnable));
    }

    /// The uppermost wait, if its thread sleeps for it, lasts because the thread has no CPU.
    fn is_queued(&mut self, at: usize) {
        let now = self.now;
        if let Some(top) = self.threads[at]
            .waits
            .last_mut()
            .filter(|top| !top.is_spinning)
        {
            top.wait.queued_ns = Some(now);
        }
    }

    fn runs(&mut self, at: usize) {
        let (task, idle, now) = (self.threads[at].task, self.idle, self.now);
        self.set(None);
        self.interrupt_spins();
        self.programs.host.switch(false, [idle, task], Some(0));
        self.place(at, Place::Running);
        if let Some(top) = self.threads[at].waits.last_mut() {
            top.wait.runs(now);
        }
    }

    fn is_replaced(&mut self, at: usize) {
        for lock in 0..self.locks.len() {
            if self.locks[lock].owner == Some(at) {
                self.locks[lock].owner = None;
                self.programs
                    .owned(self.locks[lock].address, self.locks[lock].words, 0);
            }
        }
        let (tid, tgid) = (self.threads[at].tid, self.threads[at].tgid);
        self.programs.free_task(self.threads[at].task);
        self.threads[at].task = self.programs.thread(tid, tgid);
        self.dress(at);
        self.threads[at].is_known = true;
        self.set(Some(STRANGER));
        self.programs
            .host
            .fork(self.threads[STRANGER].task, self.threads[at].task);
        self.place(at, Place::Queued);
    }

    /// A row's lock.
    fn key(&self, at: usize, lock: usize) -> Key {
        let is_own = self.memory_of(at) == Some(lock);
        Key {
            address: self.locks[lock].address as u64,
            operation: self.locks[lock].class as u8,
            is_shared: false,
            is_realtime: false,
            tgid: if is_own { self.threads[at].tgid } else { 0 },
        }
    }

    fn is_mutex(flags: u32) -> bool {
        flags & MUTEX != 0
    }
}
