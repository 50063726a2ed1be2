//! What a thread waits for and who has it, as plain data.

use symbols::places::InFile;

/// What kind of thing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Mutex,
    PiMutex,
    RwLockRead,
    RwLockWrite,
    RustMutex,
    RustRwLock,
    ParkingLot,
    GoRuntime,
    /// glibc's own locks, of malloc and stdio.
    LibraryLock,
    /// The end of a thread.
    Join,
    /// A condition variable, a semaphore, work: no lock.
    Event,
    KernelMutex,
    KernelRwsemRead,
    KernelRwsemWrite,
    KernelSemaphore,
    KernelRtMutex,
}

impl Class {
    /// The stable words of every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::PiMutex => "PI mutex",
            Self::RwLockRead => "rwlock (read)",
            Self::RwLockWrite => "rwlock (write)",
            Self::RustMutex => "Rust mutex",
            Self::RustRwLock => "Rust rwlock",
            Self::ParkingLot => "parking_lot lock",
            Self::GoRuntime => "Go runtime lock",
            Self::LibraryLock => "library lock",
            Self::Join => "end of thread",
            Self::Event => "event",
            Self::KernelMutex => "kernel mutex",
            Self::KernelRwsemRead => "kernel rwsem (read)",
            Self::KernelRwsemWrite => "kernel rwsem (write)",
            Self::KernelSemaphore => "kernel semaphore",
            Self::KernelRtMutex => "kernel rt-mutex",
        }
    }

    /// Whether it is a lock of the kernel's.
    pub(crate) fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::KernelMutex
                | Self::KernelRwsemRead
                | Self::KernelRwsemWrite
                | Self::KernelSemaphore
                | Self::KernelRtMutex
        )
    }

    /// Whether somebody else has what is waited for, as opposed to: nobody has it yet.
    pub(crate) fn is_lock(self) -> bool {
        !matches!(self, Self::Join | Self::Event)
    }
}

/// Which lock: two waits for the same are for the same lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// A word of one address space.
    Private { space: u64, address: u64 },
    /// A word of a file that several processes may have mapped.
    Shared(InFile),
    /// A lock of the kernel's.
    Kernel(u64),
    /// The end of a thread, by its ID.
    Thread(u32),
    /// The wait does not say which lock: the waiter's index.
    Hidden(usize),
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This thread has the lock.
    Thread(usize),
    /// Probably this thread: who took a read lock last, or a semaphore.
    Perhaps(usize),
    /// The lock names a thread that has exited, by this ID.
    Gone(u32),
    /// So many readers; which, nobody records.
    Readers(u64),
    /// The lock does not record it.
    Unrecorded,
}

impl Holder {
    /// The thread that is named, however surely.
    pub(crate) fn thread(self) -> Option<usize> {
        match self {
            Self::Thread(thread) | Self::Perhaps(thread) => Some(thread),
            _ => None,
        }
    }

    /// By another look's numbers; a thread that is not there any more has nothing.
    pub(crate) fn renumbered(self, new: impl Fn(usize) -> Option<usize>) -> Self {
        match self {
            Self::Thread(thread) => new(thread).map_or(Self::Unrecorded, Self::Thread),
            Self::Perhaps(thread) => new(thread).map_or(Self::Unrecorded, Self::Perhaps),
            other => other,
        }
    }
}

/// One thread's wait.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// Index among the threads.
    pub(crate) waiter: usize,
    pub(crate) class: Class,
    pub(crate) lock: Identity,
    /// Where the lock is, for people.
    pub(crate) name: String,
    pub(crate) holder: Holder,
    /// It ends by itself.
    pub(crate) timed: bool,
    /// Only threads of the waiter's process can end it.
    pub(crate) private: bool,
}

impl Wait {
    /// Whether the wait is a futex call, as opposed to one for a lock of the kernel's.
    pub(crate) fn is_futex(&self) -> bool {
        !matches!(self.lock, Identity::Kernel(_))
    }
}
