//! Ways of waiting for a futex.

/// A wait, as the kernel was asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operation {
    /// FUTEX_WAIT.
    Wait,
    /// FUTEX_WAIT_BITSET, and `futex_wait(2)`.
    WaitBitset,
    /// FUTEX_LOCK_PI, FUTEX_LOCK_PI2: the word is the owner's ID.
    LockPi,
    /// FUTEX_WAIT_REQUEUE_PI: a condition variable whose mutex is a PI mutex.
    RequeuePi,
    /// The second part of a wait that the kernel moved to another futex.
    Requeued,
    /// `futex_waitv(2)`, any of several, and what else there may be.
    #[default]
    Any,
}

/// `enum futex_operation` of the BPF side, the first numbers of which are the kernel's.
impl From<u8> for Operation {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::Wait,
            6 | 13 => Self::LockPi,
            9 => Self::WaitBitset,
            11 => Self::RequeuePi,
            69 => Self::Requeued,
            _ => Self::Any,
        }
    }
}
