//! What a thread waits for and who has it, as plain data.

use symbols::places::InFile;

use super::thread::KernelKind;
use crate::lockstat::futex::Class;
use crate::lockstat::postgres;

/// What kind of thing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Program(Class),
    Kernel(KernelKind),
    /// A lock of a program in Python.
    Python,
    /// A monitor of a program in Java, and another lock that knows which thread has it.
    Java,
    JavaLock,
    /// What a process of PostgreSQL's says that it waits for.
    Server(postgres::Class),
}

impl Waited {
    /// The stable words of every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Program(class) => match class {
                Class::Mutex => "mutex",
                Class::Pi => "PI mutex",
                Class::RwlockRead => "rwlock (read)",
                Class::RwlockWrite => "rwlock (write)",
                Class::Rwlock => "rwlock",
                Class::RustMutex => "Rust mutex",
                Class::RustRwlock => "Rust rwlock",
                Class::ParkingLot => "parking_lot lock",
                Class::Go => "Go runtime lock",
                Class::Gil => "GIL",
                Class::Java => "Java lock",
                Class::Monitor => "Java monitor",
                Class::LibraryLock => "library lock",
                Class::Join => "end of thread",
                Class::Flock => "flock",
                Class::Posix => "POSIX lock",
                Class::Ofd => "OFD lock",
                Class::SysvSem => "System V semaphore",
                Class::Rust
                | Class::RustOnce
                | Class::Cond
                | Class::Sem
                | Class::Barrier
                | Class::Park
                | Class::Eventfd
                | Class::Named
                | Class::Token
                | Class::ParkingCore
                | Class::Unknown => "event",
            },
            Self::Kernel(KernelKind::Mutex) => "kernel mutex",
            Self::Kernel(KernelKind::RwsemRead) => "kernel rwsem (read)",
            Self::Kernel(KernelKind::RwsemWrite) => "kernel rwsem (write)",
            Self::Kernel(KernelKind::Semaphore) => "kernel semaphore",
            Self::Kernel(KernelKind::RtMutex) => "kernel rt-mutex",
            Self::Python => "Python lock",
            Self::Java => "Java monitor",
            Self::JavaLock => "Java lock",
            Self::Server(postgres::Class::Lwlock) => "PostgreSQL LWLock",
            Self::Server(postgres::Class::BufferPin) => "PostgreSQL buffer pin",
            Self::Server(_) => "PostgreSQL lock",
        }
    }

    /// The end of a thread.
    pub(crate) fn is_join(self) -> bool {
        self == Self::Program(Class::Join)
    }

    /// A condition variable, a semaphore, work: no lock.
    pub(crate) fn is_event(self) -> bool {
        !self.is_join() && !self.is_lock()
    }

    /// Somebody else has what is waited for, as opposed to: nobody has it yet.
    pub(crate) fn is_lock(self) -> bool {
        match self {
            Self::Program(class) => class.is_lock() && class != Class::RustOnce,
            Self::Kernel(_) | Self::Python | Self::Java | Self::JavaLock | Self::Server(_) => true,
        }
    }

    /// Its holder is read out of the program, after the looks.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Python | Self::Java | Self::JavaLock)
    }
}

/// Which lock: two waits for the same are for the same lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// A word of one address space.
    Private { space: u64, address: u64 },
    /// A word of a file that several processes may have mapped.
    Shared(InFile),
    /// A lock of a file, of one sort, by the file's device and inode and the process that has it: ranges of a file are locks of
    /// their own.
    File(Class, String, Option<u32>),
    /// A lock of a server's, by the server's process.
    Server(u32, postgres::Tag),
    /// A lock of the kernel's.
    Kernel(u64),
    /// The end of a thread, by its ID.
    Thread(u32),
    /// The wait does not say which lock: the waiter's index, and its address space.
    Hidden { waiter: usize, space: u64 },
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This thread has the lock.
    Thread(usize),
    /// Probably this thread: who took a read lock last, or a semaphore.
    Perhaps(usize),
    /// This thread waits for the lock, too, and is to have it before.
    Ahead(usize),
    /// A thread, nobody knows which, of the process whose first thread this is.
    Process(usize),
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
            Self::Thread(thread) | Self::Perhaps(thread) | Self::Ahead(thread) => Some(thread),
            _ => None,
        }
    }

    /// A thread of the process that has it.
    pub(crate) fn member(self) -> Option<usize> {
        match self {
            Self::Process(leader) => Some(leader),
            other => other.thread(),
        }
    }

    /// By another look's numbers; a thread that is not there any more has nothing.
    pub(crate) fn renumbered(self, new: impl Fn(usize) -> Option<usize>) -> Self {
        match self {
            Self::Thread(thread) => new(thread).map_or(Self::Unrecorded, Self::Thread),
            Self::Perhaps(thread) => new(thread).map_or(Self::Unrecorded, Self::Perhaps),
            Self::Ahead(thread) => new(thread).map_or(Self::Unrecorded, Self::Ahead),
            Self::Process(thread) => new(thread).map_or(Self::Unrecorded, Self::Process),
            other => other,
        }
    }
}

/// One thread's wait.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// Index among the threads.
    pub(crate) waiter: usize,
    pub(crate) kind: Waited,
    pub(crate) lock: Identity,
    /// Where the lock is, for people.
    pub(crate) name: String,
    pub(crate) holder: Holder,
    /// It ends by itself.
    pub(crate) timed: bool,
    /// Only threads of the waiter's process can end it.
    pub(crate) private: bool,
    /// It ended while its holder was looked for: it keeps nobody for ever.
    pub(crate) is_over: bool,
    /// More is known by the server whose process it is.
    pub(crate) told: Told,
}

/// What a server says of a wait of its process's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) since_ns: Option<u64>,
    /// Others in the way, beside the holder, by their numbers among the threads.
    pub(crate) also: Vec<usize>,
}

impl Wait {
    /// Whether the wait is a futex call, as opposed to one for a lock of the kernel's.
    pub(crate) fn is_futex(&self) -> bool {
        !matches!(self.lock, Identity::Kernel(_))
    }
}
