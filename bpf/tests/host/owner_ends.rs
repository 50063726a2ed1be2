//! Waits that end, and those that the iterator finds before the window.

use std::ptr;

use super::waits::KERNEL_STACK;
use super::{Owners, Place, STRANGER, THREADS, Waiting};
use crate::calling::WAKER;
use crate::futex_account::{Edge, End, Wait};

/// A wait that is as long is worth a walk.
const LONG_NS: u64 = 10_000;
/// One shorter wait in so many is walked, too.
const SAMPLE: u32 = 16;

impl Owners {
    /// The uppermost wait of a thread, mostly, or another one, or one that nobody has seen beginning.
    pub(super) fn ends(&mut self, at: usize) {
        let depth = self.threads[at].waits.len();
        let lock = match (self.rng.u32(0..12), depth) {
            (0, _) | (_, 0) => self.rng.usize(0..self.locks.len()),
            (1, _) => self.threads[at].waits[self.rng.usize(0..depth)].lock,
            _ => self.threads[at].waits[depth - 1].lock,
        };
        let ret = if !self.is_over() && self.rng.u32(0..4) == 0 {
            -4
        } else {
            0
        };
        self.set(Some(at));
        self.programs.ends(self.locks[lock].address, ret);
        let found = self.threads[at]
            .waits
            .iter()
            .rposition(|wait| wait.lock == lock);
        let Some(found) = found else {
            if self.is_open_at(self.now) {
                if self.threads[at].is_known {
                    self.lost.unbegun += 1;
                } else {
                    self.lost.begun_before += 1;
                }
                self.threads[at].is_known = true;
            }
            return;
        };
        self.drops_above(at, found + 1);
        let waiting = self.threads[at].waits.pop().expect("a wait");
        self.logs_end(at, lock, self.now);
        if self.open_ns.is_some_and(|open| self.now >= open) {
            self.is_over_for(at, waiting, ret);
        }
    }

    fn is_over_for(&mut self, at: usize, mut waiting: Waiting, ret: i32) {
        if ret != 0 {
            waiting.wait.seen[3] = 0;
            waiting.wait.holder = waiting.wait.holder.filter(|holder| holder.kind != WAKER);
        }
        let key = waiting.wait.key;
        let is_long = self.now - waiting.begin_ns >= LONG_NS;
        if is_long || !self.named.contains_key(&key) || self.dice.is_multiple_of(SAMPLE) {
            self.walk(at, &mut waiting);
        }
        self.is_named(at, &waiting);
        let edge = self.threads[at].edge;
        if self.end_ns.is_some_and(|end| self.now > end) {
            let edge = edge.expect("the window's end");
            self.is_left_open(waiting, edge);
            return;
        }
        let end = if ret == 0 { End::Over } else { End::GivenUp };
        self.book.is_over_at(waiting.wait, self.now, end, edge);
    }

    pub(super) fn is_left_open(&mut self, mut waiting: Waiting, edge: Edge) -> Waiting {
        if waiting.wait.told_ns.is_none_or(|told| told < edge.ns) {
            self.book.is_open(&mut waiting.wait, edge);
        }
        waiting
    }

    /// The lock gets a name when its first wait ends, or is looked at.
    pub(super) fn is_named(&mut self, at: usize, waiting: &Waiting) {
        let key = waiting.wait.key;
        if self.named.contains_key(&key) {
            return;
        }
        if self.book.is_full {
            self.lost.names_full += 1;
            return;
        }
        let name = self.name(key, waiting.lock, at, waiting.wait.seen[1]);
        self.named.insert(key, name);
    }

    /// Some threads sleep for locks before tracing begins: the iterator learns which ones from fields of theirs.
    pub(super) fn are_found(&mut self) {
        for at in 0..THREADS {
            let place = match self.rng.u32(0..6) {
                0 => Place::Running,
                1 => Place::Queued,
                _ => Place::Asleep,
            };
            self.place(at, place);
        }
        self.place(STRANGER, Place::Running);
        for at in 0..THREADS {
            let field = self.rng.u32(0..12);
            let lock = self.lock_behind(at, field);
            let address = lock.map_or(ptr::null_mut(), |lock| self.locks[lock].address);
            self.programs.sleeps(
                self.threads[at].task,
                if lock.is_some() { field } else { 0 },
                address,
            );
            // Below such a futex is a real-time mutex, and that is another account's.
            let is_futex = field == 6 && self.pipe_of(at).is_none() && self.rng.bool();
            if is_futex {
                let operation = *self.rng.choice(&[6, 11, 13]).expect("some");
                self.programs.calls_futex(self.threads[at].task, operation);
            }
            self.set(None);
            self.programs.seed(self.threads[at].task);
            self.programs.close(self.threads[at].task);
            if let Some(lock) =
                lock.filter(|_| self.finds && !is_futex && self.threads[at].place == Place::Asleep)
            {
                self.is_found(at, lock, matches!(field, 4 | 8));
            }
        }
        self.programs.close(self.threads[STRANGER].task);
    }

    fn is_found(&mut self, at: usize, lock: usize, is_reader: bool) {
        let mut wait = Wait::at(self.key(at, lock), self.threads[at].tid, self.now);
        wait.tgid = self.threads[at].tgid;
        wait.seen[0] = u64::from(is_reader);
        wait.holder = self.holder(lock, true);
        if self.is_taken {
            self.lost.unwalked += 1;
        } else {
            wait.seen[1] = KERNEL_STACK - u64::from(self.threads[at].tid);
        }
        let waiting = Waiting::new(lock, wait, self.now);
        self.logs_begin(at, lock, false);
        self.threads[at].waits.push(waiting);
    }

    /// One that this field can tell of.
    fn lock_behind(&mut self, at: usize, field: u32) -> Option<usize> {
        let class = match field {
            1 | 2 => 3,
            3 => 0,
            4 | 5 => 4,
            6 => 5,
            7 | 8 => return self.memory_of(at),
            _ => return None,
        };
        let fits = |lock: &usize| self.locks[*lock].class as u8 == class;
        let all: Vec<usize> = (0..self.locks.len()).filter(fits).collect();
        self.rng.choice(all)
    }
}
