//! A process of 32-bit programs: its calls have other numbers and registers, and no program sees them come and go before user space has
//! attached those that do.

use super::{Call, Futexes, PROCESSES, Programs, Waiting};

/// This one is of 32-bit programs, by its number modulo [`PROCESSES`].
const COMPAT: u32 = 2;

impl Futexes {
    /// The process's number, if this world has one.
    pub(super) fn compat_tgid(programs: &Programs, seed: u64) -> Option<u32> {
        let has_one = programs.has_compat() && seed.is_multiple_of(2);
        has_one.then_some(100 + (0..PROCESSES).find(|at| (100 + at) % PROCESSES == COMPAT)?)
    }

    pub(super) fn is_compat(&self, at: usize) -> bool {
        self.book.compat_tgid == Some(self.threads[at].tgid)
    }

    /// Its calls' beginnings and ends are not seen.
    pub(super) fn is_unseen(&self, at: usize) -> bool {
        !self.is_attached && self.is_compat(at)
    }

    /// A call returns, and the programs take it to last.
    pub(super) fn returns_unseen(&mut self, at: usize, waiting: Box<Waiting>) {
        if waiting.wait.is_some() {
            self.threads[at].unreturned = waiting.wait;
        }
        self.set(Some(at));
        self.programs.returns(0);
        self.leaves_call(at);
    }

    /// A thread leaves its CPU: whether this is still the call that it waited in, nobody knows.
    pub(super) fn drops_unreturned(&mut self, at: usize) {
        if !self.is_unseen(at) {
            return;
        }
        let mut dropped = self.threads[at].unreturned.take().is_some();
        if let Call::Wait(waiting) = &mut self.threads[at].call {
            dropped |= waiting.wait.take().is_some();
        }
        self.book.told[0] += u64::from(dropped);
    }

    /// User space attaches the programs for 32-bit calls, at a moment at which all that was seen beginning lasts.
    pub(super) fn attaches(&mut self) {
        let returned = |at: usize| self.threads[at].unreturned.is_some();
        if !self.is_attached && !(0..self.threads.len()).any(returned) {
            self.programs.attach();
            self.is_attached = true;
        }
    }
}
