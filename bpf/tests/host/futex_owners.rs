//! Threads that locks name, and threads that are replaced.

use super::{Call, Futexes, NOBODY, Place, Waiting, level};
use crate::calling::{Holder, OWNER};
use crate::futex_account::Wait;
use crate::futex_calls::NO_CALL;
use crate::futex_locks::JOINED;

impl Futexes {
    /// The thread that has a lock and releases it more often than others do.
    pub(super) fn favourite(&self, lock: usize) -> usize {
        (5 * lock + 1) % self.threads.len()
    }

    /// The lock says from now on that another thread has it, or nobody, or what was never a thread.
    pub(super) fn changes_hands(&mut self, lock: usize) {
        let tid = match self.rng.bool() {
            true => self.threads[self.favourite(lock)].tid,
            false => self.rng.choice(&self.threads).expect("some").tid,
        };
        let number = match self.rng.u32(0..10) {
            0 => 0,
            1 => NOBODY,
            2 => tid | 0x4000_0000,
            _ => tid,
        };
        self.locks[lock].is_owned_by(number);
    }

    /// A thread that waits reads in the lock who has it.
    pub(super) fn reads_owner(&self, at: usize, waiting: &Waiting, wait: &mut Wait) {
        let owner = self.owner(at, waiting);
        let value = u64::from(waiting.values[0]);
        wait.evidence = [owner.map_or(0, |(_, place)| place), value];
        wait.holder = owner.map(|(holder, _)| holder);
    }

    /// The owner that the lock names, if that is a thread that can have it, and the place.
    fn owner(&self, at: usize, waiting: &Waiting) -> Option<(Holder, u64)> {
        let (waiter, lock) = (&self.threads[at], &self.locks[waiting.locks[0]]);
        let (number, place) =
            lock.names(waiting.operation, waiting.values[0], self.is_compat(at))?;
        let owner = self.threads.iter().find(|thread| thread.tid == number)?;
        if !self.has_vpid && level(waiter.tgid) > 0 {
            return None;
        }
        // Numbers of another namespace mean others.
        let is_meant = place != JOINED && lock.is_shared && level(owner.tgid) == level(waiter.tgid);
        let holder = Holder {
            kind: OWNER,
            tid: owner.tid,
            tgid: owner.tgid,
            state: owner.place as usize,
            stack: 0,
        };
        (owner.tgid == waiter.tgid || is_meant).then_some((holder, place))
    }

    /// The thread ends, and another one gets its number.
    pub(super) fn is_replaced(&mut self, at: usize) {
        let (task, tid, tgid) = (
            self.threads[at].task,
            self.threads[at].tid,
            self.threads[at].tgid,
        );
        let parent = (at + 1) % self.threads.len();
        self.programs.free_task(task);
        let made = self.programs.thread(tid, tgid);
        self.programs.level(made, level(tgid));
        self.threads[at].task = made;
        self.threads[at].call = Call::None;
        self.threads[at].unreturned = None;
        self.asks(at, NO_CALL, [0; 6]);
        self.set(Some(parent));
        self.programs.host.fork(self.threads[parent].task, made);
        self.book.told[11] += u64::from(self.is_compat(at));
        self.place(at, Place::Queued);
    }
}
