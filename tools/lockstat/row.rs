//! A lock and who waited for it: plain data, where the kernel's and the programs' locks meet.

use std::cmp::Reverse;
use std::sync::Arc;

use bpf::lockstat::types::lock_id;
use hist::Histogram;
use profile::model::Task;
use profile::rank::Rank;

use crate::lockstat::futex::Class;
use crate::lockstat::meanwhile::Meanwhile;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Side {
    Kernel,
    User,
}

impl Side {
    /// A stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// Which lock: `struct lock_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) side: Side,
    /// Of the lock; of one that processes share: its offset in the file.
    pub(crate) address: u64,
    /// Inode of that file; else 0, or what tells apart locks that nobody sees.
    pub(crate) object: u64,
    /// Major and minor number of the device that the file is on, where there is one.
    pub(crate) device: Option<(u32, u32)>,
    /// The process that has it, where one has; else 0.
    pub(crate) tgid: u32,
    /// Value of the BPF side's enum.
    pub(crate) class: u8,
}

impl Identity {
    /// `CALL_FLOCK` in `enum futex_operation` of the BPF side: locks with calls of their own, then servers' wait events.
    const FIRST_OF_OTHERS: u8 = 128;

    /// Looks whether it is a program's lock that threads wait for in a futex call.
    pub(crate) fn is_futex(&self) -> bool {
        self.side == Side::User && self.class < Self::FIRST_OF_OTHERS
    }

    /// Looks whether it is a lock of a file's: flock, POSIX, of an open file description.
    pub(crate) fn is_files(&self) -> bool {
        let of_files = Self::FIRST_OF_OTHERS..Self::FIRST_OF_OTHERS + 3;
        self.side == Side::User && of_files.contains(&self.class)
    }
}

impl From<&lock_id> for Identity {
    fn from(id: &lock_id) -> Self {
        Self {
            side: if id.side == 0 {
                Side::Kernel
            } else {
                Side::User
            },
            address: id.address,
            object: id.object,
            device: None,
            tgid: id.tgid,
            class: id.class,
        }
    }
}

/// What a lock is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockName {
    /// Of this lock: `mmap_lock of redis-server 123`.
    pub(crate) own: String,
    /// Of its kind, which many locks may share: `mmap_lock`. Empty where a lock is unlike all others.
    pub(crate) kind: String,
}

impl LockName {
    /// The name of a lock, and that of its kind.
    pub(crate) fn new(own: impl Into<String>, kind: impl Into<String>) -> Self {
        let (own, kind) = (own.into(), kind.into());
        Self { own, kind }
    }
}

/// Things that threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum For {
    Work,
    Others,
    /// Nobody can tell.
    Unclear,
}

impl For {
    /// A stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Others => "others",
            Self::Unclear => "unclear",
        }
    }
}

/// A class that is less sure than this, in per cent, is a guess.
pub(crate) const SURE: u8 = 80;

/// One lock in one interval; or several of a kind, in the table.
#[derive(Clone, Debug)]
pub(crate) struct LockRow {
    pub(crate) identity: Identity,
    pub(crate) name: LockName,
    /// `mutex`, `rwsem`, …
    pub(crate) class: &'static str,
    /// That it is of this class, in per cent.
    pub(crate) confidence: u8,
    /// Thing that they wait for.
    pub(crate) what: For,
    /// It is a lock, though made of what queues of work are made of, too: its threads take turns with it.
    pub(crate) in_turns: bool,
    /// Locks that this row stands for.
    pub(crate) locks: u64,
    /// Waits that ended in the interval, and those that are still open.
    pub(crate) contentions: u64,
    pub(crate) waits: Histogram,
    /// Inside the interval, ns.
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) spin_ns: u64,
    pub(crate) block_ns: u64,
    /// Part of `block_ns`: runnable, not yet on a CPU.
    pub(crate) run_queue_ns: u64,
    /// Did not have to wait after all (user locks).
    pub(crate) raced: u64,
    /// Ended without the lock: a timeout, a signal.
    pub(crate) timed_out: u64,
    /// Not over at the end of the interval.
    pub(crate) open: u64,
    /// First function outside the lock's own code, on the heaviest stack.
    pub(crate) first_caller: Option<Arc<str>>,
    /// Heaviest first.
    pub(crate) waiters: Vec<Waiter>,
    /// Whoever caused most first.
    pub(crate) holders: Vec<Holder>,
    /// Threads that came last to a barrier, most often first.
    pub(crate) last: Vec<Arrival>,
}

/// Classes of rules and servers' that a look at this instant knows.
const KNOWN_NOW: [&str; 7] = [
    "gil",
    "join",
    "python-lock",
    "monitor",
    "lwlock",
    "lock",
    "bufferpin",
];

impl LockRow {
    /// Looks whether a look at this instant knows such locks, and who has them.
    pub(crate) fn is_known_now(&self) -> bool {
        let is_it = |class: &Class| class.is_lock() && class.word() == self.class;
        self.identity.side == Side::Kernel
            || self.identity.is_files()
            || Class::FAMILIES.iter().any(is_it)
            || KNOWN_NOW.contains(&self.class)
    }

    /// Heaviest waiters and holders first.
    pub(crate) fn sort(&mut self) {
        self.waiters
            .rank_by_key(|waiter| Reverse((waiter.total_ns, waiter.task.tid)));
        self.holders
            .rank_by_key(|holder| Reverse((holder.caused_ns, holder.task.tid)));
        self.last
            .rank_by_key(|last| Reverse((last.times, last.caused_ns, last.task.tid)));
    }
}

/// Stands for the thread, where an interrupt waited.
pub(crate) const INTERRUPT: &str = "[interrupt]";

/// A thread's waits for one lock in one place.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) task: Task,
    /// First function outside the lock's own code; unknown where no stack was walked.
    pub(crate) caller: Option<Arc<str>>,
    /// An interrupt waited, not the thread that it interrupted.
    pub(crate) in_interrupt: bool,
    /// As a reader.
    pub(crate) is_shared: bool,
    /// Interned stacks; 0: not walked.
    pub(crate) kernel: u64,
    pub(crate) user: u64,
    pub(crate) waker: u64,
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) run_queue_ns: u64,
    pub(crate) max_ns: u64,
    /// Most frames, from the leaf on, that lay inside of where the thread waits for work in other calls; 0: none, or nobody knows.
    pub(crate) inside: u64,
}

/// Waits for work that were not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) class: &'static str,
    pub(crate) waits: u64,
    pub(crate) total_ns: u64,
    /// Time of waits that nobody was seen to end, and whose function does not say that they are for work: a lock may be made of what they
    /// are for, and somebody keep it.
    pub(crate) unended_ns: u64,
}

/// A thread that came last to a barrier, and released those who waited there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) task: Task,
    pub(crate) times: u64,
    /// Time that the others waited for it, ns.
    pub(crate) caused_ns: u64,
    /// First function outside the library's code on its way to the barrier; unknown where no stack was walked.
    pub(crate) caller: Option<Arc<str>>,
    /// Its interned stacks, at most times; 0: not walked.
    pub(crate) waker: u64,
}

/// How it is known who had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum HolderKind {
    /// The lock says so.
    Owner,
    /// One of several readers, the last that came.
    Reader,
    /// Whoever ended the wait.
    Waker,
}

impl HolderKind {
    /// `enum holder_kind` of the BPF side.
    pub(crate) fn of(code: u32) -> Self {
        match code {
            1 => Self::Owner,
            2 => Self::Reader,
            _ => Self::Waker,
        }
    }

    /// A stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Reader => "reader",
            Self::Waker => "waker",
        }
    }
}

/// A thread that had a lock when others began to wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) task: Task,
    pub(crate) kind: HolderKind,
    /// Waits that began meanwhile, and their time, ns.
    pub(crate) waits: u64,
    pub(crate) caused_ns: u64,
    /// What it was doing when they began; 0 for what is not known.
    pub(crate) on_cpu: u64,
    pub(crate) runnable: u64,
    pub(crate) blocked: u64,
    /// Doings of one that ended the waits while they lasted, ns.
    pub(crate) meanwhile: Meanwhile,
    /// Interned kernel stack; 0: not walked, or on a CPU.
    pub(crate) stack: u64,
}

impl Holder {
    /// Leaves out what it was doing when waits began.
    pub(crate) fn forget_state(&mut self) {
        (self.on_cpu, self.runnable, self.blocked) = (0, 0, 0);
    }
}

impl Holder {
    /// Adds what it made others wait on another lock, or on another occasion.
    pub(crate) fn add(&mut self, more: &Self) {
        self.waits += more.waits;
        self.caused_ns += more.caused_ns;
        self.on_cpu += more.on_cpu;
        self.runnable += more.runnable;
        self.blocked += more.blocked;
        self.meanwhile.add(&more.meanwhile);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::made_up::task;

    /// A mutex that was waited for once.
    pub(crate) fn row(total_ns: u64) -> LockRow {
        let mut waits = Histogram::default();
        waits.record(total_ns);
        LockRow {
            identity: Identity {
                side: Side::Kernel,
                address: 0xffff_8881_0000_0000,
                object: 0,
                device: None,
                tgid: 0,
                class: 3,
            },
            name: LockName::default(),
            class: "mutex",
            what: For::Others,
            in_turns: false,
            confidence: 100,
            locks: 1,
            contentions: 1,
            waits,
            total_ns,
            max_ns: total_ns,
            spin_ns: 0,
            block_ns: total_ns,
            run_queue_ns: 0,
            raced: 0,
            timed_out: 0,
            open: 0,
            first_caller: None,
            waiters: Vec::new(),
            holders: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Threads 8, 9 and so on, which came last so often.
    pub(crate) fn arrivals(times: &[u64]) -> Vec<Arrival> {
        let of = |(tid, times): (u32, &u64)| Arrival {
            task: task("team", 7, tid),
            times: *times,
            caused_ns: 10 * times,
            caller: Some("work".into()),
            waker: 0,
        };
        (8..).zip(times).map(of).collect()
    }

    /// One wait.
    pub(crate) fn waiter(task: Task, total_ns: u64) -> Waiter {
        Waiter {
            task,
            caller: None,
            in_interrupt: false,
            is_shared: false,
            kernel: 0,
            user: 0,
            waker: 0,
            count: 1,
            total_ns,
            run_queue_ns: 0,
            max_ns: total_ns,
            inside: 0,
        }
    }
}
