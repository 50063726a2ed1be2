//! One event.

use anyhow::{Result, bail};

use crate::skeleton::types;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A CPU goes from one thread to another.
    Switch {
        /// Who leaves it; 0: nobody.
        prev: u32,
        /// Who gets it; 0: nobody.
        next: u32,
        /// `prev` would have liked to keep it.
        runnable: bool,
        /// `prev` may be woken by signals, too.
        interruptible: bool,
    },
    /// A thread is made runnable, if it is not yet.
    Wakeup {
        /// The thread.
        tid: u32,
        /// It is a new one.
        is_new: bool,
        /// It has a CPU.
        runs: bool,
    },
    /// A thread is about to be made runnable.
    Waking {
        /// The thread. On its way to sleep it may still have a CPU.
        tid: u32,
    },
    /// A thread makes a system call.
    Call {
        /// The thread.
        tid: u32,
        /// Which.
        call: Call,
    },
    /// A thread's system call returns.
    Return {
        /// The thread.
        tid: u32,
        /// Negative: an error's number.
        result: i64,
    },
    /// A thread begins to wait for a lock of the kernel's, or goes on to otherwise.
    Contention {
        /// The thread.
        tid: u32,
        /// Address.
        lock: u64,
        /// One wait for such a lock may begin several times.
        is_mutex: bool,
    },
    /// That is over.
    Contended {
        /// The thread.
        tid: u32,
        /// Address.
        lock: u64,
    },
    /// A clock of the CPU's, see [`ticks`](crate::ticks), finds a thread there.
    Tick {
        /// The thread; 0: nobody.
        tid: u32,
    },
    /// A block request gets on.
    Request {
        /// How far.
        step: Step,
        /// Which.
        request: Request,
    },
}

/// Where a block request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It exists.
    Started,
    /// Given to the driver.
    Issued,
    /// So many bytes of it have completed.
    Completed(u32),
    /// All of it has been accounted for.
    Done,
}

/// A block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Address; the kernel uses it again.
    pub address: u64,
    /// Major number from bit 20 on, and the minor number.
    pub disk: u32,
    /// The kernel's stamp of its start, ns; 0: none.
    pub start_ns: u64,
    /// The kernel's stamp of its issue, ns; 0: none.
    pub issued_ns: u64,
    /// `REQ_OP_…` of include/linux/blk_types.h
    pub operation: u8,
    /// It is a part of a flush sequence.
    pub is_in_flush: bool,
}

/// A system call as far as this is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of its table.
    pub number: u32,
    /// The table is that of 32-bit programs.
    pub is_compat: bool,
    /// The first argument, often an address.
    pub first: u64,
    /// The second, its lower half.
    pub second: u32,
    /// The fifth.
    pub fifth: u64,
}

/// An event in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Where it happened.
    pub cpu: u32,
    /// What.
    pub kind: Kind,
}

/// `TASK_INTERRUPTIBLE`
const INTERRUPTIBLE: u64 = 1;
/// `PREEMPTED` of `bpf/scheduler.bpf.h`, and `COMPAT` of `bpf/calls.bpf.h`
const BESIDES: u64 = 1 << 32;
/// Of `bpf/requests.bpf.h`.
const IN_FLUSH: u64 = 1 << 8;
/// `LCB_F_MUTEX` of include/trace/events/lock.h
const MUTEX: u64 = 32;

impl Event {
    pub(crate) fn parse(event: &types::event) -> Result<Self> {
        let tid = event.thread;
        let kind = match event.kind {
            1 => Kind::Switch {
                prev: tid,
                next: event.other,
                runnable: event.detail == 0 || event.detail >= BESIDES,
                interruptible: event.detail & INTERRUPTIBLE != 0,
            },
            2 => Kind::Wakeup {
                tid,
                is_new: event.detail & 1 != 0,
                runs: event.detail & 2 != 0,
            },
            3 => Kind::Call {
                tid,
                call: Call {
                    number: event.detail as u32,
                    is_compat: event.detail >= BESIDES,
                    first: event.object,
                    second: event.other,
                    fifth: event.second,
                },
            },
            4 => Kind::Return {
                tid,
                result: event.detail.cast_signed(),
            },
            5 => Kind::Contention {
                tid,
                lock: event.object,
                is_mutex: event.detail & MUTEX != 0,
            },
            6 => Kind::Contended {
                tid,
                lock: event.object,
            },
            7 => Kind::Waking { tid },
            8..=11 => Kind::Request {
                step: match event.kind {
                    8 => Step::Issued,
                    9 => Step::Completed((event.detail >> 32) as u32),
                    10 => Step::Done,
                    _ => Step::Started,
                },
                request: Request::parse(event),
            },
            12 => Kind::Tick { tid },
            kind => bail!("event of kind {kind}"),
        };
        Ok(Self {
            ns: event.ns,
            cpu: event.cpu,
            kind,
        })
    }
}

impl Request {
    fn parse(event: &types::event) -> Self {
        Self {
            address: event.object,
            disk: event.other,
            start_ns: event.second,
            issued_ns: event.third,
            operation: event.detail as u8,
            is_in_flush: event.detail & IN_FLUSH != 0,
        }
    }
}

/// On CPU 0.
#[cfg(test)]
pub(crate) fn switch(ns: u64, prev: u32, next: u32, runnable: bool) -> Event {
    let kind = Kind::Switch {
        prev,
        next,
        runnable,
        interruptible: !runnable,
    };
    Event { ns, cpu: 0, kind }
}

/// On another one.
#[cfg(test)]
pub(crate) fn wakeup(ns: u64, tid: u32) -> Event {
    let kind = Kind::Wakeup {
        tid,
        is_new: false,
        runs: false,
    };
    Event { ns, cpu: 1, kind }
}
