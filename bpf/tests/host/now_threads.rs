//! Threads in random states, and all that `lockstat --now` is to say of each.

use std::ffi::{CStr, c_void};

use fastrand::Rng;

use crate::host::Host;

type Pointer = *mut c_void;

/// `PF_KTHREAD`, `PF_EXITING`
const KTHREAD: u64 = 0x0020_0000;
const EXITING: u64 = 4;
/// Fields that some kernels have not.
const LACKED: [&CStr; 6] = [
    c"",
    c"sem->wait_list",
    c"task->blocked_on",
    c"task->blocker",
    c"semaphore->last_holder",
    c"waiter->task",
];
/// Waiters of one lock that are looked at.
const LISTED: u64 = 256;
/// Frames of a stack that there is room for.
const FRAMES: u64 = 127;
/// The tool's PID namespace.
const NAMESPACE: u64 = 7;
const SYSCALLS: u64 = 512;
const NO_SYSCALL: u64 = u64::MAX;
/// futex(2)'s number on x86-64, for the programs anywhere.
const FUTEX: u64 = 202;
/// Place of the lock's kind among the numbers.
pub(crate) const LOCK_KIND: usize = 8;

/// `struct host_facts`
#[repr(C)]
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    tids: [u64; 3],
    tgids: [u64; 3],
    level: u64,
    comm: u64,
    state: u64,
    flags: u64,
    is_on_queue: u64,
    is_delayed: u64,
    is_on_cpu: u64,
    switches: u64,
    preemptions: u64,
    start_ns: u64,
    is_io: u64,
    is_throttled: u64,
    has_signal: u64,
    blocked_on: u64,
    blocker: u64,
    pi_lock: u64,
    mm: u64,
    place: u64,
    waiters: u64,
    is_reader: u64,
    number: u64,
    arguments: [u64; 6],
    ip: u64,
    sp: u64,
    bp: u64,
    is_compat: u64,
    is_exact: u64,
    file_type: u64,
    depth: u64,
}

/// A lock's word on itself: address, owner, count, kind, whether it is the thread's mmap_lock.
type Says = [u64; 5];

const NO_LOCK: Says = [0; 5];
/// enum kernel_lock_kind
const MUTEX: u64 = 1;
const READER: u64 = 2;
const WRITER: u64 = 3;
const SEMAPHORE: u64 = 4;
const RT_MUTEX: u64 = 5;

pub(crate) struct Threads {
    host: Host,
    rng: Rng,
    lacks: &'static CStr,
    /// 32-bit programs are played.
    has_compat: bool,
    /// Depth of the tool's PID namespace.
    level: u64,
    fd_syscall: u64,
    /// All, users', the kernel's.
    mode: u32,
    blocks: Vec<Pointer>,
    wanted: Vec<u64>,
    last: Pointer,
}

/// The numbers of a lock's words.
fn word(lock: u64, at: usize) -> u64 {
    // SAFETY: a block of the host's, which is longer.
    unsafe { (lock as *const u64).add(at).read() }
}

impl Threads {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let lacks = rng.choice(LACKED).expect("some");
        let (level, mode) = (rng.u64(0..2), rng.u32(0..3));
        let fd_syscall = rng.u64(0..FUTEX);
        let begin = (level as u32, FUTEX as u32, fd_syscall as u32, mode);
        host.tell("host_begin", begin);
        host.tell("host_lack", (lacks.as_ptr(),));
        let has_compat = host.ask("host_has_compat", ());
        let blocks = (0..6).map(|_| host.ask("host_block", ())).collect();
        let mut threads = Self {
            host,
            rng,
            lacks,
            has_compat,
            level,
            fd_syscall,
            mode,
            blocks,
            wanted: Vec::new(),
            last: std::ptr::null_mut(),
        };
        for _ in 0..40 {
            let tid = threads.rng.u64(1..100);
            threads.wanted.push(tid);
            threads.host.tell("host_want", (tid as u32,));
        }
        threads
    }

    /// A lock that says anything of itself.
    fn lock(&mut self) -> u64 {
        let block = *self.rng.choice(&self.blocks).expect("some");
        for at in 0..2 {
            // SAFETY: as for `word`.
            unsafe { block.cast::<u64>().add(at).write(self.rng.u64(..)) };
        }
        block as u64
    }

    /// True one time in `of`.
    fn once_in(&mut self, of: u32) -> u64 {
        u64::from(self.rng.u32(0..of) == 0)
    }

    pub(crate) fn any(&mut self) -> Facts {
        let number = match self.rng.u32(0..8) {
            0 => NO_SYSCALL,
            1 => self.rng.u64(SYSCALLS..2 * SYSCALLS),
            2..=3 => FUTEX,
            4..=5 if self.fd_syscall > 0 => self.fd_syscall,
            _ => self.rng.u64(1..SYSCALLS),
        };
        let mut arguments = [(); 6].map(|()| self.rng.u64(..));
        arguments[0] = self.rng.u64(0..4);
        arguments[1] = self.rng.u64(0..512);
        arguments[2] = self.rng.u64(0..512);
        let state = [0, 1, 2, 4, 8, 0x102, 0x402, 0x1000];
        let is_asleep = self.rng.u32(0..4) > 0;
        let (lock, mm) = (self.lock(), self.lock());
        let (mutex, other, real_time) = (self.once_in(4), self.once_in(4), self.once_in(4));
        let has_memory = self.rng.u32(0..4) > 0;
        // Some wait for the lock of their own memory, and some kernels write that down.
        let lock = if self.rng.bool() { lock } else { mm };
        let waiters = *self.rng.choice(&[0, 1, 3, 20, 400]).expect("some");
        let is_compat = if self.has_compat { self.once_in(4) } else { 0 };
        Facts {
            tids: [(); 3].map(|()| self.rng.u64(1..100)),
            tgids: [(); 3].map(|()| self.rng.u64(1..100)),
            level: self.rng.u64(0..3),
            comm: self.rng.u64(..),
            state: *self.rng.choice(&state).expect("some"),
            flags: self.once_in(4) * KTHREAD + self.once_in(4) * EXITING,
            is_on_queue: if is_asleep { 0 } else { self.rng.u64(0..2) },
            is_delayed: self.once_in(4),
            is_on_cpu: if is_asleep { 0 } else { self.rng.u64(0..2) },
            switches: self.rng.u64(0..1_000),
            preemptions: self.rng.u64(0..1_000),
            start_ns: self.rng.u64(..),
            is_io: self.once_in(4),
            is_throttled: self.once_in(4),
            has_signal: self.once_in(4),
            blocked_on: mutex * lock,
            blocker: other * (lock + self.rng.u64(0..4)),
            pi_lock: real_time * lock,
            mm: if has_memory { mm } else { 0 },
            place: self.rng.u64(0..waiters + 2),
            waiters,
            is_reader: self.rng.u64(0..2),
            number,
            arguments,
            ip: self.rng.u64(..),
            sp: self.rng.u64(..),
            bp: self.rng.u64(..),
            is_compat,
            is_exact: self.rng.u64(0..2),
            file_type: self.rng.u64(1..16),
            depth: self.rng.i64(-14..140) as u64,
        }
    }

    /// Numbers of a look at a thread like this.
    pub(crate) fn look(&mut self, facts: &Facts) -> Vec<u64> {
        let mut numbers = [0; 256];
        self.last = self.host.ask("host_thread", (facts,));
        let look = (self.last, numbers.as_mut_ptr());
        let count = self.host.ask::<u32>("host_look", look);
        numbers[..count as usize].to_vec()
    }

    fn has(&self, field: &CStr) -> bool {
        self.lacks != field
    }

    /// A number in the tool's namespace, of those in all namespaces; 0: it has none there.
    fn inner(&self, facts: &Facts, numbers: [u64; 3]) -> u64 {
        if facts.level < self.level {
            return 0;
        }
        numbers[self.level as usize]
    }

    fn is_wanted(&self, facts: &Facts) -> bool {
        let is_kernels = facts.flags & KTHREAD != 0;
        let is_of_kind = match self.mode {
            1 => !is_kernels,
            2 => is_kernels,
            _ => true,
        };
        is_of_kind && self.inner(facts, facts.tgids) != 0
    }

    /// The lock that a sleeper waits for, as the fields tell that its kernel has.
    fn lock_of(&self, facts: &Facts) -> Says {
        let mutex = |address| [address, word(address, 0), 0, MUTEX, 0];
        let rwsem = |address, kind| [address, word(address, 1), word(address, 0), kind, 0];
        if facts.blocked_on != 0 && self.has(c"task->blocked_on") {
            return mutex(facts.blocked_on);
        }
        if facts.blocker != 0 && self.has(c"task->blocker") {
            let address = facts.blocker & !3;
            let mut says = match facts.blocker & 3 {
                0 => mutex(address),
                1 if self.has(c"semaphore->last_holder") => {
                    [address, word(address, 0), 0, SEMAPHORE, 0]
                }
                1 => [address, 0, 0, SEMAPHORE, 0],
                2 => rwsem(address, READER),
                _ => rwsem(address, WRITER),
            };
            says[4] = u64::from(address == facts.mm);
            return says;
        }
        if facts.pi_lock != 0 {
            return [facts.pi_lock, word(facts.pi_lock, 0), 0, RT_MUTEX, 0];
        }
        // Killable waits are in the lock's own list. Who is idle waits for nothing.
        let is_uninterruptible = facts.state & 2 != 0 && facts.state & 0x400 == 0;
        let is_listed = facts.place < facts.waiters.min(LISTED) && self.has(c"waiter->task");
        if facts.mm == 0 || !is_uninterruptible || !is_listed {
            return NO_LOCK;
        }
        let kind = if facts.is_reader == 1 { READER } else { WRITER };
        let mut says = rwsem(facts.mm, kind);
        says[4] = 1;
        says
    }

    /// enum wait_flags
    fn flags_of(&self, facts: &Facts, is_asleep: bool) -> u64 {
        let kernels = if facts.flags & KTHREAD != 0 {
            1 << 6
        } else {
            0
        };
        if !is_asleep {
            return kernels | 1 | facts.is_throttled << 1;
        }
        let waits_for_lock = facts.pi_lock != 0
            || facts.blocked_on != 0 && self.has(c"task->blocked_on")
            || facts.blocker != 0 && self.has(c"task->blocker");
        let of_state = [(2, 1 << 2), (0xc, 1 << 7), (0x400, 1 << 3)];
        let of_state = of_state.iter().filter(|(bits, _)| facts.state & bits != 0);
        let of_state: u64 = of_state.map(|(_, flag)| flag).sum();
        kernels | of_state | facts.is_io << 4 | u64::from(waits_for_lock) << 5
    }

    /// System call, type of file, operation and value of a futex.
    fn call_of(&self, facts: &Facts) -> [u64; 4] {
        if facts.number >= SYSCALLS {
            return [NO_SYSCALL, 0, 0, 0];
        }
        let is_open = facts.number == self.fd_syscall && facts.arguments[0] == 1;
        let file_type = if is_open { facts.file_type } else { 0 };
        let (operation, value) = match facts.number {
            FUTEX => (facts.arguments[1] & 0xff, facts.arguments[2].min(0x100)),
            _ => (0, 0),
        };
        [facts.number, file_type, operation, value]
    }

    /// The numbers of `host_look`.
    pub(crate) fn expected(&self, facts: &Facts) -> Vec<u64> {
        let is_queued = facts.is_on_queue == 1 && facts.is_delayed == 0;
        let phase = match (facts.is_on_cpu == 1, is_queued || facts.state == 0) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        let is_asleep = phase == 2;
        let is_users = facts.mm != 0 && facts.flags & KTHREAD == 0;
        let lock = if is_asleep {
            self.lock_of(facts)
        } else {
            NO_LOCK
        };
        let mut registers = [facts.ip, facts.sp, facts.bp];
        let mut call = self.call_of(facts);
        let mut arguments = facts.arguments;
        let mut is_compat = facts.is_compat;
        let mut is_exact = u64::from(self.has_compat) * facts.is_exact;
        if is_compat == 1 {
            arguments[5] = facts.bp;
            arguments = arguments.map(|argument| argument & u64::from(u32::MAX));
            is_exact = u64::from(facts.arguments[1] != facts.ip);
        }
        is_exact |= u64::from(facts.number == NO_SYSCALL);
        if !is_users {
            (registers, call, arguments) = ([0; 3], [NO_SYSCALL, 0, 0, 0], [0; 6]);
            (is_compat, is_exact) = (0, 0);
        }
        let tid = self.inner(facts, facts.tids);
        let is_walked = phase > 0 && self.wanted.contains(&tid);
        let depth = match i64::try_from(facts.depth) {
            Ok(depth) if is_walked => (depth as u64).min(FRAMES),
            _ => 0,
        };
        let own = facts.level as usize;
        let mut numbers = vec![
            depth * 8,
            1,
            facts.mm,
            facts.start_ns,
            facts.switches + facts.preemptions,
        ];
        numbers.extend(lock);
        numbers.extend(registers);
        numbers.extend([self.inner(facts, facts.tgids), tid, facts.tids[own]]);
        numbers.push([20, NAMESPACE, 22][own]);
        numbers.extend(call);
        numbers.extend([facts.comm, phase, self.flags_of(facts, is_asleep)]);
        numbers.extend([u64::from(self.is_wanted(facts)), is_exact, is_compat]);
        numbers.extend([u64::from(facts.flags & EXITING != 0), depth]);
        numbers.extend(arguments);
        numbers.extend((0..depth).map(|at| 1_000 + at));
        numbers
    }
}
