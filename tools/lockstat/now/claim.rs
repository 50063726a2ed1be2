//! Threads that seem to have a lock, by what was read out of their program.

use super::lock::Holder;

/// A thread that is in a block of a lock's.
pub(super) struct Claim {
    pub(super) thread: usize,
    /// The lock says so.
    pub(super) is_owner: bool,
    /// No other thread is. Where several are, one has given it away by hand, or it changed hands while the frames were read.
    pub(super) is_only: bool,
}

impl Claim {
    /// One that waits for a lock in its own block may have given it away before, by hand.
    pub(super) fn holder(&self, waiter: usize) -> Holder {
        match self.is_only {
            false => Holder::Unrecorded,
            true if self.thread == waiter && !self.is_owner => Holder::Perhaps(waiter),
            true => Holder::Thread(self.thread),
        }
    }
}
