//! Waits that begin, and whom they are for.

use super::locks::{READ, SPIN};
use super::{DEEPEST, Owners, Place, STRANGER, THREADS, Waiting};
use crate::calling::{Holder, OWNER, WAKER};
use crate::futex_account::Wait;

/// One of several readers.
const READER: u64 = 2;
pub(super) const USER_STACK: u64 = 1 << 40;
pub(super) const KERNEL_STACK: u64 = 1 << 41;

impl Owners {
    /// The lock's holder now, as those see it who come to wait.
    pub(super) fn holder(&mut self, lock: usize, with_stack: bool) -> Option<Holder> {
        let (owner, is_read) = self.owner_of(lock)?;
        let (tid, tgid) = (self.threads[owner].tid, self.threads[owner].tgid);
        let state = self.threads[owner].place as usize;
        let mut stack = 0;
        let can_walk = self.has_holder_stacks && self.lacks != c"bpf_task_from_pid";
        if with_stack && can_walk && state > 0 && !self.is_without {
            if self.is_taken {
                self.lost.holders_unwalked += 1;
            } else {
                stack = KERNEL_STACK - u64::from(tid);
            }
        }
        Some(Holder {
            kind: if is_read { READER } else { OWNER },
            tid,
            tgid,
            state,
            stack,
        })
    }

    /// Spinning on top of a thread's waits has ended unseen when the thread sleeps, or is about to.
    pub(super) fn drop_stale_spins(&mut self, at: usize) {
        let waits = &self.threads[at].waits;
        let sleeps = |wait: &Waiting| !self.locks[wait.lock].class.spins();
        let stay = waits.iter().rposition(sleeps).map_or(0, |last| last + 1);
        self.drops_above(at, stay);
    }

    /// The ends of a thread's waits from this one on were not seen.
    pub(super) fn drops_above(&mut self, at: usize, stay: usize) {
        for waiting in self.threads[at].waits.split_off(stay) {
            self.lost.unended += 1;
            // An interval has had its piece.
            if let Some(told_ns) = waiting.wait.told_ns {
                self.logs_end(at, waiting.lock, told_ns);
            }
        }
    }

    /// Both stacks of one who waits, once.
    pub(super) fn walk(&mut self, at: usize, waiting: &mut Waiting) {
        if waiting.is_walked {
            return;
        }
        waiting.is_walked = true;
        let key = self.key(at, waiting.lock);
        if self.named.contains_key(&key) && self.is_without {
            return;
        }
        if self.is_taken {
            self.lost.unwalked += 1;
            return;
        }
        waiting.wait.seen[1] = KERNEL_STACK + self.place;
        // An idle task has no user space.
        if at <= STRANGER {
            waiting.wait.seen[2] = USER_STACK + self.place;
        }
    }

    pub(super) fn begins(&mut self, at: usize) {
        let lock = self.rng.usize(0..self.locks.len());
        self.begins_at(at, lock, None);
    }

    /// A mutex's waiter, who spins, sleeps.
    pub(super) fn goes_on(&mut self, at: usize) {
        let lock = self.threads[at].waits.last().expect("a wait").lock;
        let flags = self.locks[lock].class.flags();
        if Self::is_mutex(flags[0]) {
            self.begins_at(at, lock, Some(flags[0]));
        } else {
            self.ends(at);
        }
    }

    pub(super) fn begins_at(&mut self, at: usize, lock: usize, flags: Option<u32>) {
        let found = self.threads[at]
            .waits
            .iter()
            .rposition(|wait| wait.lock == lock);
        let mut flags = match flags {
            Some(flags) => flags,
            None => *self
                .rng
                .choice(self.locks[lock].class.flags())
                .expect("some"),
        };
        // The account knows of one time of spinning, in front.
        if found.is_some_and(|found| !self.threads[at].waits[found].is_spinning) {
            flags &= !SPIN;
        }
        self.set(Some(at));
        self.programs.begins(self.locks[lock].address, flags);
        if self.is_over() {
            return;
        }
        self.threads[at].is_known = true;
        let goes_on = found.is_some() && Self::is_mutex(flags);
        if let Some(found) = found {
            self.drops_above(at, found + usize::from(goes_on));
        }
        self.logs_begin(at, lock, goes_on);
        if !goes_on {
            self.is_new_wait(at, lock, flags);
        } else if let Some(edge) = self.threads[at].edge.filter(|edge| self.now > edge.ns) {
            let waiting = self.threads[at].waits.pop().expect("it goes on");
            let waiting = self.is_left_open(waiting, edge);
            self.threads[at].waits.push(waiting);
        }
        let mut waiting = self.threads[at].waits.pop().expect("this wait");
        waiting.is_spinning = flags & SPIN != 0;
        if !waiting.is_spinning {
            waiting.wait.slept_ns.get_or_insert(self.now);
        }
        let holder = self.holder(lock, !waiting.is_spinning);
        waiting.wait.holder = holder.or(waiting.wait.holder);
        if !waiting.is_spinning {
            self.walk(at, &mut waiting);
        }
        self.threads[at].waits.push(waiting);
    }

    fn is_new_wait(&mut self, at: usize, lock: usize, flags: u32) {
        if !self.locks[lock].class.spins() {
            self.drop_stale_spins(at);
        }
        if self.threads[at].waits.len() >= DEEPEST {
            self.drops_above(at, 0);
        }
        let begin_ns = self.now.max(self.open_ns.unwrap_or(0));
        let mut wait = Wait::at(self.key(at, lock), self.threads[at].tid, begin_ns);
        wait.slept_ns = None;
        wait.tgid = self.threads[at].tgid;
        wait.seen[0] = u64::from(flags & READ != 0);
        let waiting = Waiting::new(lock, wait, self.now);
        self.threads[at].waits.push(waiting);
    }

    /// Somebody wakes the thread, or an interrupt that hits somebody, and for some reason it may go unseen.
    pub(super) fn is_woken(&mut self, at: usize) {
        let by = self.rng.usize(0..THREADS + 3);
        let by = (by <= STRANGER && self.threads[by].place == Place::Running).then_some(by);
        self.set(by);
        if self.rng.u32(0..16) > 0 {
            self.programs.waking(self.threads[at].task);
            if !self.is_over() {
                self.is_queued(at);
                self.is_released(at, by);
            }
        }
        self.place(at, Place::Queued);
    }

    fn is_released(&mut self, at: usize, by: Option<usize>) {
        let (tid, tgid) = by.map_or((0, 0), |by| (self.threads[by].tid, self.threads[by].tgid));
        let waker = self.waker(tid, tgid);
        let wants = self.has_stacks[0] || self.has_stacks[1];
        let Some(top) = self.threads[at]
            .waits
            .last_mut()
            .filter(|top| !top.is_spinning)
        else {
            return;
        };
        let is_semaphore = top.wait.key.operation == 0;
        if !is_semaphore && top.wait.holder.is_none_or(|holder| holder.kind == WAKER) {
            top.wait.holder = Some(Holder::waker(tid, tgid));
        }
        if !wants || self.is_without {
            return;
        }
        if self.is_taken {
            self.lost.unwalked += 1;
        } else {
            top.wait.seen[3] = waker;
        }
    }

    /// A number for the record of a waker who is here.
    fn waker(&mut self, tid: u32, tgid: u32) -> u64 {
        let [user, kernel] = self.has_stacks;
        let record = [
            u64::from(tid),
            super::locks::name_of(tid),
            0,
            if kernel { KERNEL_STACK + self.place } else { 0 },
            if user { USER_STACK + self.place } else { 0 },
            5,
            1,
            u64::from(tgid),
        ];
        self.wakers.number_of(record)
    }
}
