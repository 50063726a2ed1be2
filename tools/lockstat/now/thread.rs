//! What one look at the machine says of each thread.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

use anyhow::Result;
use bpf::lockstat_now::types::now_thread;
use host::task::comm_text;
use host::waits::{Wait, flags};
use loader::maps;
use profile::frame::Frame;
use profile::model::{StackEnd, Task};
use stacks::unwind::Registers;
use stacks::words;

/// `enum now_phase` of the BPF side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On a CPU.
    Running,
    /// Waiting for one.
    Runnable,
    /// Neither.
    Asleep,
}

/// `enum kernel_lock_kind` of the BPF side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelKind {
    Mutex,
    RwsemRead,
    RwsemWrite,
    Semaphore,
    RtMutex,
}

/// The kernel lock that a sleeping thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelLock {
    pub(crate) kind: KernelKind,
    pub(crate) address: u64,
    /// The owner's task, and the lock's flags in the low bits.
    pub(crate) owner: u64,
    /// rwsem: bit 0 for a writer, readers from bit 8 on.
    pub(crate) count: u64,
    pub(crate) is_mmap_lock: bool,
}

/// One thread at one look.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) task: Task,
    /// Address of its task and when it began: the same for no other thread.
    pub(crate) identity: (u64, u64),
    /// Its address space; 0: a kernel thread.
    pub(crate) space: u64,
    /// Context switches so far.
    pub(crate) switches: u64,
    pub(crate) phase: Phase,
    /// The options asked for it.
    pub(crate) wanted: bool,
    pub(crate) exiting: bool,
    /// Its ID as it knows it itself, and in which PID namespace.
    pub(crate) own_tid: u32,
    pub(crate) pid_namespace: u32,
    pub(crate) wait: Wait,
    pub(crate) arguments: [u64; 6],
    /// A 32-bit program.
    pub(crate) compat: bool,
    pub(crate) registers: Registers,
    pub(crate) kernel_lock: Option<KernelLock>,
    /// Leaf first; only where it was asked for.
    pub(crate) kernel_stack: Vec<u64>,
}

impl Thread {
    /// Whether it sleeps in a way that somebody else may end.
    pub(crate) fn is_asleep(&self) -> bool {
        self.phase == Phase::Asleep && self.wait.flags & flags::STOPPED == 0
    }

    /// Whether it will never run its program again.
    pub(crate) fn is_dead(&self) -> bool {
        self.exiting && self.phase == Phase::Asleep
    }

    /// Whether this is the same sleep of the same thread: it has not run since `earlier`.
    pub(crate) fn slept_since(&self, earlier: &Self) -> bool {
        self.identity == earlier.identity
            && self.switches == earlier.switches
            && self.is_asleep()
            && earlier.is_asleep()
    }

    /// One of which no more is known.
    #[cfg(test)]
    pub(crate) fn made_up(comm: &str) -> Self {
        let mut thread = Self::decode(&now_thread::default(), Vec::new());
        thread.task = crate::made_up::task(comm, 4_194_304, 4_194_303);
        thread.wanted = true;
        thread
    }

    fn decode(raw: &now_thread, kernel_stack: Vec<u64>) -> Self {
        Self {
            task: Task::new(comm_text(&raw.comm), raw.tgid, raw.tid),
            identity: (raw.task, raw.start_ns),
            space: raw.mm,
            switches: raw.switches,
            phase: match raw.phase {
                0 => Phase::Running,
                1 => Phase::Runnable,
                _ => Phase::Asleep,
            },
            wanted: raw.wanted != 0,
            exiting: raw.exiting != 0,
            own_tid: raw.own_tid,
            pid_namespace: raw.pid_namespace,
            wait: Wait {
                flags: raw.wait_flags,
                syscall: raw.call.syscall,
                file_type: raw.call.file_type,
                futex_op: raw.call.futex_op,
                futex_value: raw.call.futex_value,
            },
            arguments: raw.arguments,
            compat: raw.compat != 0,
            registers: Registers {
                ip: raw.ip,
                sp: raw.sp,
                bp: raw.bp,
                lr: raw.lr,
                thread_pointer: raw.thread_pointer,
                exact: raw.exact != 0,
            },
            kernel_lock: kernel_lock(raw),
            kernel_stack,
        }
    }
}

fn kernel_lock(raw: &now_thread) -> Option<KernelLock> {
    let kind = match raw.lock.kind {
        1 => KernelKind::Mutex,
        2 => KernelKind::RwsemRead,
        3 => KernelKind::RwsemWrite,
        4 => KernelKind::Semaphore,
        5 => KernelKind::RtMutex,
        _ => return None,
    };
    Some(KernelLock {
        kind,
        address: raw.lock.address,
        owner: raw.lock.owner,
        count: raw.lock.count,
        is_mmap_lock: raw.lock.is_mmap_lock != 0,
    })
}

/// The threads of one look, found by ID.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) all: Vec<Thread>,
    by_task: HashMap<u64, usize>,
    by_own_id: HashMap<(u32, u32), usize>,
    by_tid: HashMap<u32, usize>,
    of_process: HashMap<u32, usize>,
    /// Programs run that have no number in the tool's PID namespace.
    pub(crate) has_outsiders: bool,
}

impl Threads {
    /// Decodes the iterator's output. Threads without a number in the tool's PID namespace are left out.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self> {
        let mut threads = Self::default();
        while bytes.len() >= size_of::<now_thread>() {
            let raw: now_thread = maps::decode(bytes)?;
            bytes = &bytes[size_of::<now_thread>()..];
            let stack: Vec<u64> = words(bytes).take(raw.depth as usize).collect();
            bytes = bytes.get(stack.len() * 8..).unwrap_or_default();
            if raw.tid != 0 {
                threads.push(Thread::decode(&raw, stack));
            } else {
                threads.has_outsiders |= raw.mm != 0;
            }
        }
        Ok(threads)
    }

    pub(crate) fn push(&mut self, thread: Thread) {
        let index = self.all.len();
        self.by_task.insert(thread.identity.0, index);
        self.by_own_id
            .insert((thread.pid_namespace, thread.own_tid), index);
        self.by_tid.insert(thread.task.tid, index);
        *self.of_process.entry(thread.task.tgid).or_default() += 1;
        self.all.push(thread);
    }

    /// The thread whose kernel structure is at `task`.
    pub(crate) fn of_task(&self, task: u64) -> Option<usize> {
        self.by_task.get(&task).copied()
    }

    /// So many threads are of this process.
    pub(crate) fn of_process(&self, tgid: u32) -> usize {
        self.of_process.get(&tgid).copied().unwrap_or(0)
    }

    pub(crate) fn of_tid(&self, tid: u32) -> Option<usize> {
        self.by_tid.get(&tid).copied()
    }

    /// The thread that `waiter` knows as `tid`.
    pub(crate) fn as_known_to(&self, waiter: &Thread, tid: u32) -> Option<usize> {
        self.by_own_id.get(&(waiter.pid_namespace, tid)).copied()
    }
}

/// A thread's stack, root first.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub(crate) user: Arc<[Frame]>,
    /// How complete the user's part is.
    pub(crate) user_end: Option<StackEnd>,
    pub(crate) kernel: Arc<[Frame]>,
}
