//! Why a thread left its CPU, from kernel state and system call number.

use std::fmt;

pub mod file_type;
mod syscalls;
#[cfg(test)]
mod tests;

/// Kernel facts about one wait, as `bpf/include/waits.bpf.h` collects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Bits of [`flags`].
    pub flags: u8,
    /// System call in progress; negative: a fault or an interrupt.
    pub syscall: i16,
    /// [`file_type`] of the file descriptor waited on; 0: none, or an anonymous inode of another kind.
    pub file_type: u8,
    /// Futex operation with `FUTEX_PRIVATE_FLAG`, without the flag of its clock.
    pub futex_op: u8,
    /// Value expected in the futex word; 0x100 for anything above 0xff.
    pub futex_value: u32,
}

/// `enum wait_flags` of the BPF side.
pub mod flags {
    /// It could have gone on running.
    pub const RUNNABLE: u8 = 1 << 0;
    /// Out of CPU bandwidth.
    pub const THROTTLED: u8 = 1 << 1;
    /// State D.
    pub const UNINTERRUPTIBLE: u8 = 1 << 2;
    /// State I: a kernel thread with nothing to do.
    pub const NOLOAD: u8 = 1 << 3;
    /// The kernel accounts the wait as I/O.
    pub const BLOCK_IO: u8 = 1 << 4;
    /// The kernel recorded the lock.
    pub const KERNEL_LOCK: u8 = 1 << 5;
    /// It is a kernel thread.
    pub const KERNEL_THREAD: u8 = 1 << 6;
    /// Stopped by a signal or a debugger.
    pub const STOPPED: u8 = 1 << 7;
}

/// What a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A futex: user-space locks, condition variables, joins.
    Futex,
    /// A lock inside the kernel.
    Lock,
    /// A disk, or a file system's commit.
    BlockIo,
    /// Memory being brought in.
    PageFault,
    /// `poll`, `select`, `io_uring`.
    Poll,
    /// `epoll_wait` and its kin.
    Epoll,
    /// A socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// `flock`, or a lock of `fcntl`, as `lockf` takes.
    FileLock,
    /// A System V semaphore.
    Semaphore,
    /// An `eventfd`, which counts events.
    Eventfd,
    /// Changes of files.
    Inotify,
    /// A terminal, or another character device.
    Device,
    /// A System V or POSIX message queue.
    MessageQueue,
    /// Work that the kernel has put off, as `close` does for `inotify`.
    KernelWork,
    /// A clock.
    Sleep,
    /// A child process or a signal.
    Wait,
    /// Nothing: another thread had the CPU.
    Preempted,
    /// Its control group's CPU quota.
    Throttled,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// None of these.
    Other,
}

impl Reason {
    /// The stable lower-case word used in every output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Futex => "futex",
            Self::Lock => "lock",
            Self::BlockIo => "block-io",
            Self::PageFault => "page-fault",
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::FileLock => "file-lock",
            Self::Semaphore => "semaphore",
            Self::Eventfd => "eventfd",
            Self::Inotify => "inotify",
            Self::Device => "device",
            Self::MessageQueue => "msg-queue",
            Self::KernelWork => "kernel-work",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Preempted => "preempted",
            Self::Throttled => "throttled",
            Self::Stopped => "stopped",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`.
const FUTEX_LOCKS: [u8; 2] = [6, 13];
const FUTEX_WAIT_BITSET: u8 = 9;
const FUTEX_PRIVATE: u8 = 0x80;
/// Value that glibc's and Rust's mutexes write into a lock word that has waiters.
const CONTENDED_MUTEX: u32 = 2;

/// Functions of the kernel that wait for the lock of a file or directory themselves, or for who looks up the same name, and for
/// nothing else.
const LOCKING: [&str; 15] = [
    "chmod_common",
    "chown_common",
    "d_alloc_parallel",
    "do_rmdir",
    "do_truncate",
    "do_unlinkat",
    "ext4_buffered_write_iter",
    "ext4_dio_write_iter",
    "filename_create",
    "iterate_dir",
    "lock_rename",
    "lookup_slow",
    "path_openat",
    "vfs_utimes",
    "xfs_ilock",
];
/// Beginnings of the names of functions in which locks are waited for, where a walk tells them.
const SLOW_PATHS: [&str; 3] = ["rwsem_down_", "__mutex_lock", "percpu_rwsem_wait"];
/// A FIFO is opened for one direction, and nobody has opened it for the other yet.
const FIFO_OPEN: [&str; 2] = ["fifo_open", "wait_for_partner"];
/// Beginnings of the names of functions that wait for all CPUs to have come past a point, or for work that was put off.
const KERNEL_WORK: [&str; 5] = [
    "__synchronize_srcu",
    "synchronize_rcu",
    "synchronize_srcu",
    "exp_funnel_lock",
    "__flush_work",
];

impl Wait {
    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn calls(self, table: &[libc::c_long]) -> bool {
        table.contains(&self.syscall.into())
    }

    /// The reason; total, so that reasons' times add up to the whole.
    pub fn reason(self) -> Reason {
        if self.has(flags::RUNNABLE) {
            return if self.has(flags::THROTTLED) {
                Reason::Throttled
            } else {
                Reason::Preempted
            };
        }
        if self.has(flags::STOPPED) {
            return Reason::Stopped;
        }
        let in_syscall = self.syscall >= 0 && !self.has(flags::KERNEL_THREAD);
        if in_syscall && self.calls(syscalls::FUTEX) {
            return Reason::Futex;
        }
        if self.has(flags::KERNEL_LOCK) {
            return Reason::Lock;
        }
        if self.has(flags::KERNEL_THREAD) {
            return if self.has(flags::BLOCK_IO) {
                Reason::BlockIo
            } else {
                Reason::Other
            };
        }
        if in_syscall {
            self.syscall_reason()
        } else {
            Reason::PageFault
        }
    }

    /// The reason, told by the kernel's function that waits, too: the kernel records no lock for which a signal may end the wait, and
    /// before 6.16 no lock of a file or directory at all; nor do system calls say that a file is a FIFO before it is open.
    pub fn reason_in(self, function: &str) -> Reason {
        let function = function.split('.').next().unwrap_or_default();
        let is_one_of = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        let is_lock = is_one_of(&SLOW_PATHS) || LOCKING.contains(&function);
        let is_call = !self.has(flags::BLOCK_IO | flags::KERNEL_THREAD) && self.syscall >= 0;
        let stands = is_call && self.has(flags::UNINTERRUPTIBLE);
        match self.reason() {
            Reason::Other | Reason::BlockIo if stands && is_lock => Reason::Lock,
            Reason::Other if stands && is_one_of(&KERNEL_WORK) => Reason::KernelWork,
            Reason::Other if is_call && FIFO_OPEN.contains(&function) => Reason::Pipe,
            reason => reason,
        }
    }

    fn syscall_reason(self) -> Reason {
        if self.has(flags::BLOCK_IO) {
            return Reason::BlockIo;
        }
        if self.polls_nothing() {
            return Reason::Sleep;
        }
        let uninterruptible = self.has(flags::UNINTERRUPTIBLE);
        for (table, reason) in [
            (syscalls::SLEEP, Reason::Sleep),
            (syscalls::EPOLL, Reason::Epoll),
            (syscalls::POLL, Reason::Poll),
            (syscalls::FILE_LOCK, Reason::FileLock),
            (syscalls::SEMAPHORE, Reason::Semaphore),
            (syscalls::MESSAGE_QUEUE, Reason::MessageQueue),
            (syscalls::WAIT, Reason::Wait),
            (syscalls::VFORK, Reason::Wait),
            (syscalls::SYNC, Reason::BlockIo),
        ] {
            if self.calls(table) {
                return reason;
            }
        }
        // Killable waits for mmap_lock are not recorded as locks; nothing else makes these calls wait.
        if uninterruptible && self.calls(syscalls::ADDRESS_SPACE) {
            return Reason::Lock;
        }
        if uninterruptible && self.calls(syscalls::KERNEL_WORK) {
            return Reason::KernelWork;
        }
        match self.file_type {
            file_type::FIFO => Reason::Pipe,
            file_type::SOCKET | file_type::ACCEPTED => Reason::Socket,
            file_type::EVENTFD => Reason::Eventfd,
            file_type::INOTIFY => Reason::Inotify,
            file_type::TIMERFD => Reason::Sleep,
            file_type::SIGNALFD => Reason::Wait,
            file_type::CHARACTERS => Reason::Device,
            on_disk if uninterruptible && file_type::ON_DISK.contains(&on_disk) => Reason::BlockIo,
            _ => Reason::Other,
        }
    }

    /// Tells if it could have gone on running.
    pub fn is_runnable(self) -> bool {
        self.has(flags::RUNNABLE)
    }

    /// Tells if it is for what a client of this thread sends, by a poll of that one connection, too.
    pub fn is_for_client(self) -> bool {
        let may_be = self.calls(syscalls::RECEIVE) || self.calls(syscalls::POLL_SEEN);
        may_be && self.file_type == file_type::ACCEPTED
    }

    /// Tells if the kernel accounts it as one for I/O.
    pub fn is_accounted_io(self) -> bool {
        self.has(flags::BLOCK_IO)
    }

    /// Tells if it is for a child: for its end, or for its exec or end after `vfork`. A wait for a signal (`sigsuspend`) may be, too,
    /// and is not told.
    pub fn is_for_child(self) -> bool {
        self.calls(syscalls::CHILD) || self.calls(syscalls::VFORK)
    }

    /// Tells if it polls, and nobody has seen for what.
    pub fn polls_unseen(self) -> bool {
        self.calls(syscalls::POLL_SEEN) && self.file_type == 0
    }

    /// Tells if it is a sleep by a poll: Perl's short ones, those of Python before 3.11.
    fn polls_nothing(self) -> bool {
        self.calls(syscalls::POLL_SEEN) && self.file_type == file_type::NOTHING
    }

    /// Tells if it polls for its peer, by epoll, too: an answer is to come, as in a read from it, or what it sends is to be taken.
    fn polls_peer(self) -> bool {
        let polls = self.calls(syscalls::POLL_SEEN) || self.calls(syscalls::EPOLL);
        polls && self.file_type == file_type::SOCKET
    }

    /// Tells if it reads from a pipe. That is idle where it is a server's home, which only its thread's other waits can tell: the
    /// answer to a question may come through a pipe, too.
    pub fn reads_pipe(self) -> bool {
        self.calls(syscalls::RECEIVE) && self.file_type == file_type::FIFO && !self.is_runnable()
    }

    /// Tells if it reads what somebody else makes happen: events of an anonymous inode, characters that a person types.
    fn reads_events(self) -> bool {
        let is_anonymous = (file_type::EVENTFD..=file_type::SIGNALFD).contains(&self.file_type);
        let has_events = is_anonymous || [0, file_type::CHARACTERS].contains(&self.file_type);
        has_events && self.calls(&[libc::SYS_read])
    }

    /// Tells if a signal or a debugger has stopped the thread.
    pub fn is_stopped(self) -> bool {
        self.has(flags::STOPPED)
    }

    /// Tells if the kernel counts it for no load: a kernel thread with nothing to do.
    pub fn is_of_no_load(self) -> bool {
        self.has(flags::KERNEL_THREAD) && self.has(flags::NOLOAD)
    }

    /// Tells if it is a kernel thread's.
    pub fn is_of_kernel_thread(self) -> bool {
        self.has(flags::KERNEL_THREAD)
    }

    /// Tells if it is for a lock, as far as the call says. `FUTEX_WAIT_BITSET` between processes is not: from 2.43 on, glibc's
    /// `pthread_join` waits so for a thread that is joinable (2). Mutexes that processes share are waited for by `FUTEX_WAIT`.
    fn is_for_futex_lock(self) -> bool {
        match self.futex_op & !FUTEX_PRIVATE {
            FUTEX_WAIT_BITSET if self.futex_op & FUTEX_PRIVATE == 0 => false,
            operation => FUTEX_LOCKS.contains(&operation) || self.futex_value == CONTENDED_MUTEX,
        }
    }

    /// Tells if a thread with nothing to do may wait like this; it takes a thread's other waits to tell.
    pub fn may_be_idle(self) -> bool {
        if self.has(flags::RUNNABLE | flags::STOPPED | flags::BLOCK_IO | flags::KERNEL_LOCK) {
            return false;
        }
        if self.has(flags::KERNEL_THREAD) {
            return true;
        } else if self.syscall < 0 || self.has(flags::UNINTERRUPTIBLE) {
            return false;
        } else if self.calls(syscalls::FUTEX) {
            return !self.is_for_futex_lock();
        }
        let polls = self.calls(syscalls::POLL) || self.calls(syscalls::EPOLL);
        polls && !self.polls_peer() && !self.polls_nothing()
            || self.calls(syscalls::ACCEPT)
            || self.calls(syscalls::WAIT)
            || self.calls(syscalls::VFORK)
            || self.reads_events()
            || self.is_for_client()
    }
}

/// The bit table the BPF side consults: bit `n` says that system call `n` waits on its first argument, a descriptor.
pub fn takes_fd() -> [u64; 8] {
    bits(&[syscalls::TAKES_FD])
}

/// The bit table of system calls on a file or a connection, a descriptor of which is their first argument.
pub fn on_fd() -> [u64; 8] {
    bits(&[syscalls::TAKES_FD, syscalls::SYNC_FD])
}

/// The bit table of system calls in which threads wait for work, but for futexes: `poll` and its like, `accept`, `wait`, reads,
/// sleep. A thread that has not run yet has its parent's registers, which is in a call that makes threads.
pub fn for_work() -> [u64; 8] {
    use syscalls::{ACCEPT, EPOLL, POLL, RECEIVE, SLEEP, WAIT};
    bits(&[POLL, EPOLL, ACCEPT, WAIT, RECEIVE, SLEEP])
}

/// Bit `n` says that system call `n` is one of them.
fn bits(calls: &[&[libc::c_long]]) -> [u64; 8] {
    let mut bits = [0_u64; 8];
    for &call in calls.iter().copied().flatten() {
        let call = usize::try_from(call).expect("system call numbers are not negative");
        bits[call / 64] |= 1 << (call % 64);
    }
    bits
}

/// Number of `futex(2)`, whose arguments the BPF side keeps.
pub fn futex_syscall() -> i32 {
    i32::try_from(libc::SYS_futex).expect("system call numbers are small")
}
