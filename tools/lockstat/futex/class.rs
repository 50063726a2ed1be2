//! Kinds of things that a thread may wait for on a futex.

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
    Cond,
    Sem,
    Join,
    Barrier,
    /// A thread without work.
    Park,
    Unknown,
    /// glibc's own locks, of malloc and stdio.
    LibraryLock,
    RwlockRead,
    RwlockWrite,
    RustMutex,
    RustRwlock,
    RustOnce,
}

impl Class {
    pub(crate) const FAMILIES: [Self; 12] = [
        Self::Mutex,
        Self::Rwlock,
        Self::Pi,
        Self::Rust,
        Self::ParkingLot,
        Self::Go,
        Self::Cond,
        Self::Sem,
        Self::Join,
        Self::Barrier,
        Self::Park,
        Self::Unknown,
    ];

    /// That which rows of traced waits are kept by: one lock may be waited for in all its ways.
    pub(crate) fn family(self) -> Self {
        match self {
            Self::LibraryLock => Self::Mutex,
            Self::RwlockRead | Self::RwlockWrite => Self::Rwlock,
            Self::RustMutex | Self::RustRwlock | Self::RustOnce => Self::Rust,
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
            Self::ParkingLot => "parking_lot",
            Self::Go => "go",
            Self::Cond => "cond",
            Self::Sem => "sem",
            Self::Join => "join",
            Self::Barrier => "barrier",
            Self::Park => "park",
            Self::Unknown => "unknown",
        }
    }

    /// Looks whether waiting for it is contention, and not waiting for work.
    pub(crate) fn is_contention(self) -> bool {
        self.family() <= Self::Go
    }

    /// Looks whether the lock's own memory can say who holds it.
    pub(crate) fn names_holder(self) -> bool {
        matches!(
            self.family(),
            Self::Mutex | Self::Rwlock | Self::Pi | Self::Join
        )
    }
}
