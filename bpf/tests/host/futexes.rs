//! Threads under lockstat's programs that call futex(2) and its younger kin at random, and an account of what they did.
//!
//! A wait lasts from the moment at which its thread leaves its CPU in the call, or for priority inheritance from the call's beginning, to
//! the call's return. It is ended by a call that wakes, or by an interrupt: a timeout or a signal. Some sleeps are hidden from the
//! programs, as some kernels hide some.

use fastrand::Rng;

use crate::calling::{Place, Pointer, Programs, Wakers};
use crate::futex_account::{Book, Edge, Key, Wait};
use crate::futex_calls::{NO_CALL, OTHER, RESTART};
use crate::futex_locks::{FUTEX2, Lock};
use crate::host::Host;

/// Opening of the window, ns.
const BEGIN_NS: u64 = 1_000;
const PROCESSES: u32 = 3;
const THREADS_OF_EACH: u32 = 4;
const LOCKS: usize = 6;
/// A number that no thread has.
const NOBODY: u32 = 250;
/// Stacks are these and the place where a thread is.
const USER_STACK: u64 = 1 << 40;
const KERNEL_STACK: u64 = 1 << 41;
/// States of a thread that sleeps.
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;

#[path = "futex_asks.rs"]
mod asks;
#[path = "futex_compat.rs"]
mod compat;
#[path = "futex_intervals.rs"]
mod intervals;
#[path = "futex_owners.rs"]
mod owners;
#[path = "futex_returns.rs"]
mod returns;
#[path = "futex_wakeups.rs"]
mod wakeups;

/// `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI`
const WAITS: [u8; 3] = [0, 9, 11];
/// The ones that the tool gives futex_waitv(2) and futex_wait(2).
const WAITV: u8 = FUTEX2;
const WAIT2: u8 = FUTEX2 + 1;

#[derive(Clone)]
enum Call {
    None,
    Other,
    Wake {
        /// The futexes that it may wake through.
        locks: Vec<usize>,
        /// The place that it moves those to that it does not wake.
        to: Option<usize>,
        /// It ends the thread.
        is_exit: bool,
        /// Woken or moved.
        count: i64,
    },
    Wait(Box<Waiting>),
}

#[derive(Clone)]
struct Waiting {
    /// Several for futex_waitv(2).
    locks: Vec<usize>,
    /// The one that wakes it after it was moved.
    moved_to: Option<usize>,
    operation: u8,
    /// Its timeout, if it has one, is a time of day.
    is_realtime: bool,
    /// The words that it expects, for each of these.
    values: Vec<u32>,
    /// The wait as the programs see it.
    wait: Option<Wait>,
    /// It slept without their seeing it.
    is_hidden: bool,
    /// A call has woken it through that of its futexes: it will return.
    woken: Option<usize>,
    /// restart_syscall(2) has taken it up again.
    is_restarted: bool,
}

struct Thread {
    task: Pointer,
    tid: u32,
    tgid: u32,
    place: Place,
    call: Call,
    /// An interval has ended since the iterator came by.
    edge: Option<Edge>,
    /// A wait of a 32-bit call that has returned without being seen.
    unreturned: Option<Wait>,
}

pub(crate) struct Futexes {
    pub(crate) programs: Programs,
    pub(crate) book: Book,
    rng: Rng,
    now: u64,
    idle: Pointer,
    threads: Vec<Thread>,
    locks: Vec<Lock>,
    /// Arrays that calls are given, one of each thread.
    arrays: Vec<Pointer>,
    /// The latest requeue that moved anyone: from, to, process, when.
    requeues: Vec<(usize, usize, u32, u64)>,
    is_over: bool,
    /// 32-bit calls are seen.
    is_attached: bool,
    /// Threads are found by numbers of any namespace, and when a call begins.
    has_vpid: bool,
    /// The current thread's place, a number.
    here: u64,
    wakers: Wakers,
}

/// Depth of a process in PID namespaces.
fn level(tgid: u32) -> u32 {
    u32::from(tgid % PROCESSES == 1)
}

impl Futexes {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let programs = Programs { host };
        let mut rng = Rng::with_seed(seed);
        let lock = |at| Lock::new(programs.page(), rng.usize(..), at % 2 == 1);
        let locks = (0..LOCKS).map(lock).collect();
        let threads = PROCESSES * THREADS_OF_EACH;
        let mut world = Self {
            idle: programs.thread(0, 0),
            arrays: (0..threads).map(|_| programs.page()).collect(),
            book: Book::of(Self::compat_tgid(&programs, seed)),
            programs,
            rng,
            now: BEGIN_NS,
            threads: Vec::new(),
            locks,
            requeues: Vec::new(),
            is_over: false,
            is_attached: false,
            has_vpid: seed % 5 < 4,
            here: 0,
            wakers: Wakers::default(),
        };
        for at in 0..threads {
            let (tid, tgid) = (100 + at, 100 + at % PROCESSES);
            world.threads.push(Thread {
                task: world.programs.thread(tid, tgid),
                tid,
                tgid,
                place: Place::Running,
                call: Call::None,
                edge: None,
                unreturned: None,
            });
            world
                .programs
                .level(world.threads[at as usize].task, level(tgid));
        }
        world.set(None);
        world.programs.begin(BEGIN_NS, world.has_vpid);
        for at in 0..world.threads.len() {
            world.is_found(at);
        }
        world
    }

    /// Some wait already: of these waits as much counts as is in the window.
    fn is_found(&mut self, at: usize) {
        if at % 4 == 3 {
            let mut waiting = self.begins_to_wait(at);
            let mut key = self.key(at, &waiting);
            let mut value = u64::from(waiting.values[0]);
            // Nobody reads another process's array.
            if waiting.operation == WAITV {
                (key.address, key.is_shared, value) = (0, false, 0);
            }
            let mut wait = Wait::at(key, self.threads[at].tid, BEGIN_NS);
            wait.evidence[1] = value;
            waiting.wait = Some(wait);
            self.threads[at].call = Call::Wait(waiting);
            self.place(at, Place::Asleep);
        } else {
            self.asks(at, NO_CALL, [0; 6]);
            self.place(at, Place::Running);
        }
        self.set(None);
        self.programs.seed(self.threads[at].task);
        self.book.told[11] += u64::from(self.is_compat(at));
    }

    /// Time, CPU and who is current; `None`: the idle task.
    fn set(&mut self, current: Option<usize>) {
        let running = |at: usize| (at as u32 % 8, self.threads[at].task);
        let (cpu, task) = current.map_or((0, self.idle), running);
        self.programs.set(self.now, cpu, task);
        self.here = self.rng.u64(1..4);
        self.book.is_taken = self.rng.u32(0..64) == 0;
        self.programs.at(self.here, self.book.is_taken);
    }

    fn place(&mut self, at: usize, place: Place) {
        self.threads[at].place = place;
        self.programs.puts(self.threads[at].task, place);
    }

    fn key(&self, at: usize, waiting: &Waiting) -> Key {
        let lock = &self.locks[waiting.locks[0]];
        Key {
            address: lock.address(),
            operation: waiting.operation,
            is_shared: lock.is_shared,
            is_realtime: waiting.is_realtime,
            tgid: self.threads[at].tgid,
        }
    }

    pub(crate) fn step(&mut self) {
        self.now += self.rng.u64(1..2_000_000);
        let at = self.rng.usize(0..self.threads.len());
        self.acts_at(at);
        if self.rng.u32(0..1_024) == 0 {
            self.attaches();
        }
        if self.rng.u32(0..4_096) == 0 {
            self.programs.stall();
            self.book.stalls();
        }
    }

    fn acts_at(&mut self, at: usize) {
        let thread = &self.threads[at];
        match (thread.place, thread.call.clone()) {
            (Place::Queued, _) => self.runs(at),
            (Place::Asleep, _) => self.interrupt(at),
            (Place::Running, Call::None) => self.acts(at),
            (Place::Running, Call::Other) => match self.rng.u32(0..3) {
                0 => self.sleeps(at, false),
                _ => self.leaves_call(at),
            },
            (Place::Running, Call::Wake { .. }) => match self.rng.u32(0..6) {
                0 => self.is_preempted(at),
                1 => self.wake_returns(at),
                2..4 => self.moves(at),
                _ => self.wakes(at),
            },
            (Place::Running, Call::Wait(waiting)) => match self.rng.u32(0..7) {
                // A wakeup that comes too early.
                6 => self.interrupt(at),
                0 => self.is_preempted(at),
                1..=3 if waiting.woken.is_none() => {
                    // A call that is taken up again says nothing of itself when it returns.
                    let can_hide =
                        waiting.wait.is_none() && !waiting.is_hidden && !waiting.is_restarted;
                    let hide = can_hide && self.rng.u32(0..7) == 0;
                    self.sleeps(at, hide);
                }
                _ => self.wait_returns(at),
            },
        }
    }

    /// A thread between calls.
    fn acts(&mut self, at: usize) {
        match self.rng.u32(0..12) {
            0..=3 => self.waits(at),
            4..=7 => self.begins_to_wake(at),
            8 => {
                // Others are taken up again, too.
                let number = if self.rng.bool() { OTHER } else { RESTART };
                self.asks(at, number, [0; 6]);
                self.threads[at].call = Call::Other;
                self.sleeps(at, false);
            }
            9 => {
                let lock = self.rng.usize(0..LOCKS);
                self.changes_hands(lock);
            }
            10 => self.is_preempted(at),
            _ => self.is_replaced(at),
        }
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
            self.programs
                .host
                .switch(runnable, [task, idle], Some(state));
        }
        self.place(at, Place::left(runnable));
    }

    fn sleeps(&mut self, at: usize, hide: bool) {
        let hide = hide && !self.is_unseen(at);
        self.drops_unreturned(at);
        let is_unseen = u64::from(self.is_unseen(at));
        if let Call::Wait(mut waiting) = self.threads[at].call.clone() {
            let asked = waiting.clone();
            waiting.is_hidden |= hide;
            let (now, tid) = (self.now, self.threads[at].tid);
            match &mut waiting.wait {
                Some(wait) => {
                    let spun = wait.slept_ns.is_none();
                    wait.slept_ns.get_or_insert(now);
                    if spun && !self.has_vpid && !self.is_over {
                        self.reads_owner(at, &asked, wait);
                    }
                }
                None if hide || self.is_over => (),
                None => {
                    let mut wait = Wait::at(self.key(at, &waiting), tid, now);
                    self.reads_owner(at, &waiting, &mut wait);
                    waiting.wait = Some(wait);
                    self.book.told[11] += is_unseen;
                }
            }
            self.threads[at].call = Call::Wait(waiting);
        }
        self.switches_out(at, false, hide);
    }

    fn is_preempted(&mut self, at: usize) {
        self.drops_unreturned(at);
        self.switches_out(at, true, false);
        let now = self.now;
        if let Some(wait) = self.wait_of(at) {
            wait.queued_ns = Some(now);
        }
    }

    /// Gets a CPU.
    fn runs(&mut self, at: usize) {
        let (task, idle, now) = (self.threads[at].task, self.idle, self.now);
        self.set(None);
        self.programs.host.switch(false, [idle, task], Some(0));
        self.place(at, Place::Running);
        if let Some(wait) = self.wait_of(at) {
            wait.runs(now);
        }
    }

    fn wait_of(&mut self, at: usize) -> Option<&mut Wait> {
        match &mut self.threads[at].call {
            Call::Wait(waiting) => waiting.wait.as_mut(),
            _ => None,
        }
    }
}

impl Drop for Futexes {
    fn drop(&mut self) {
        let pages = self.arrays.iter().copied();
        for page in pages.chain(self.locks.iter().map(Lock::page)) {
            self.programs.free_page(page);
        }
    }
}
