//! Kinds of things that a thread may wait for on a futex, or in a call of its own.

/// Things that a thread waits for: families, and their members where somebody can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Mutex,
    Rwlock,
    /// A mutex with priority inheritance.
    Pi,
    /// Rust's own Mutex, RwLock and Once.
    Rust,
    ParkingLot,
    /// The Go runtime's own locks; its sync.Mutex parks goroutines, not threads.
    Go,
    /// The lock that threads of Python take turns with.
    Gil,
    /// One of java.util.concurrent, and a monitor of Java's: both know which thread has it.
    Java,
    Monitor,
    /// A lock of a file, each sort with a system call of its own.
    Flock,
    Posix,
    /// A lock of an open file description.
    Ofd,
    Cond,
    Sem,
    /// A set of System V's.
    SysvSem,
    Eventfd,
    Join,
    Barrier,
    /// A thread without work.
    Park,
    Unknown,
    /// Made of others, with a name in a rule: a lock of a database's.
    Named,
    /// glibc's own locks, of malloc and stdio.
    LibraryLock,
    RwlockRead,
    RwlockWrite,
    RustMutex,
    RustRwlock,
    RustOnce,
    /// A byte of a pipe that its readers write back; a rule has its name.
    Token,
    /// parking_lot's, of which nobody knows yet which: callers do.
    ParkingCore,
}

impl Class {
    pub(crate) const FAMILIES: [Self; 20] = [
        Self::Mutex,
        Self::Rwlock,
        Self::Pi,
        Self::Rust,
        Self::ParkingLot,
        Self::Go,
        Self::Java,
        Self::Monitor,
        Self::Flock,
        Self::Posix,
        Self::Ofd,
        Self::Cond,
        Self::Sem,
        Self::SysvSem,
        Self::Eventfd,
        Self::Join,
        Self::Barrier,
        Self::Park,
        Self::Unknown,
        Self::Named,
    ];

    /// Words of rules for a library's own, beside those of families.
    const OF_RULES: [(&'static str, Self); 8] = [
        ("gil", Self::Gil),
        ("library-lock", Self::LibraryLock),
        ("rwlock-read", Self::RwlockRead),
        ("rwlock-write", Self::RwlockWrite),
        ("rust-mutex", Self::RustMutex),
        ("rust-rwlock", Self::RustRwlock),
        ("rust-once", Self::RustOnce),
        ("parking-core", Self::ParkingCore),
    ];

    /// The class that a rule means; `None`: it is none of ours.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let ours = Self::OF_RULES.into_iter().find(|(ours, _)| *ours == word);
        let known = Self::FAMILIES.into_iter();
        let mut known = known.filter(|class| *class != Self::Named);
        ours.map(|(_, class)| class)
            .or_else(|| known.find(|class| class.word() == word))
    }

    /// Looks whether a lock is made of it, or a queue of work, which a function further up the stack says.
    pub(crate) fn is_material(self) -> bool {
        !self.is_lock() && self != Self::Named
    }

    /// That which rows of traced waits are kept by: one lock may be waited for in all its ways.
    pub(crate) fn family(self) -> Self {
        match self {
            Self::LibraryLock => Self::Mutex,
            Self::RwlockRead | Self::RwlockWrite => Self::Rwlock,
            Self::RustMutex | Self::RustRwlock | Self::RustOnce => Self::Rust,
            Self::ParkingCore => Self::ParkingLot,
            Self::Token => Self::Named,
            family => family,
        }
    }

    /// The family's stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mutex | Self::LibraryLock => "mutex",
            Self::Rwlock | Self::RwlockRead | Self::RwlockWrite => "rwlock",
            Self::Pi => "pi",
            Self::Rust | Self::RustMutex | Self::RustRwlock | Self::RustOnce => "rust",
            Self::ParkingLot | Self::ParkingCore => "parking_lot",
            Self::Go => "go",
            Self::Gil => "gil",
            Self::Java => "java-lock",
            Self::Monitor => "monitor",
            Self::Flock => "flock",
            Self::Posix => "posix",
            Self::Ofd => "ofd",
            Self::Cond => "cond",
            Self::Sem => "sem",
            Self::SysvSem => "sysv-sem",
            Self::Eventfd => "eventfd",
            Self::Join => "join",
            Self::Barrier => "barrier",
            Self::Park => "park",
            Self::Unknown => "unknown",
            Self::Named | Self::Token => "named",
        }
    }

    /// Looks whether it is a lock, for which threads wait for each other whatever the shape of their waits.
    pub(crate) fn is_lock(self) -> bool {
        self.family() <= Self::Ofd
    }

    /// Looks whether the lock itself can say who holds it.
    pub(crate) fn names_holder(self) -> bool {
        matches!(
            self.family(),
            Self::Mutex
                | Self::Rwlock
                | Self::Pi
                | Self::Gil
                | Self::Java
                | Self::Monitor
                | Self::Join
                | Self::Flock
                | Self::Posix
        )
    }
}
