//! Futex calls that return.

use super::{Call, Futexes, USER_STACK, WAIT2, WAITV, Waiting};
use crate::futex_calls::RESTART;
use crate::futex_locks::PI_WAITS;

const EAGAIN: i64 = -11;
const ETIMEDOUT: i64 = -110;
const ERESTARTSYS: i64 = -512;
const ERESTART_RESTARTBLOCK: i64 = -516;

impl Futexes {
    pub(super) fn wake_returns(&mut self, at: usize) {
        let Call::Wake {
            locks,
            to,
            is_exit,
            count,
        } = self.threads[at].call.clone()
        else {
            return;
        };
        if is_exit {
            return self.is_replaced(at);
        }
        self.set(Some(at));
        self.programs.returns(count);
        if let Some(to) = to.filter(|_| count > 0 && !self.is_unseen(at)) {
            let (from, tgid) = (locks[0], self.threads[at].tgid);
            let is_other = |requeue: &(usize, usize, u32, u64)| {
                (requeue.0, requeue.1, requeue.2) != (from, to, tgid)
            };
            self.requeues.retain(is_other);
            self.requeues.push((from, to, tgid, self.now));
        }
        self.leaves_call(at);
    }

    fn result(&mut self, waiting: &Waiting) -> i64 {
        let several = waiting.locks.len() as i64;
        let can_restart = [0, 9, WAIT2].contains(&waiting.operation);
        match waiting.woken {
            Some(place) if self.rng.u32(0..8) > 0 => {
                if waiting.operation == WAITV {
                    place as i64
                } else {
                    0
                }
            }
            None if waiting.wait.is_none() && !waiting.is_hidden => *self
                .rng
                .choice(&[0, several - 1, EAGAIN, ETIMEDOUT, ERESTARTSYS])
                .expect("some"),
            None if can_restart && self.rng.bool() => ERESTART_RESTARTBLOCK,
            _ => *self.rng.choice(&[ETIMEDOUT, ERESTARTSYS]).expect("some"),
        }
    }

    pub(super) fn wait_returns(&mut self, at: usize) {
        let Call::Wait(mut waiting) = self.threads[at].call.clone() else {
            return;
        };
        if self.is_unseen(at) {
            return self.returns_unseen(at, waiting);
        }
        let wait = waiting.wait.take();
        // Some kernels do not tell of every return. Then the next call does.
        if wait.is_some() && !self.is_over && self.rng.u32(0..32) == 0 {
            self.book.told[0] += 1;
            return self.waits_by_futex(at);
        }
        let ret = match wait {
            Some(_) => {
                waiting.wait.clone_from(&wait);
                self.result(&waiting)
            }
            None => self.result(&waiting),
        };
        self.set(Some(at));
        self.programs.returns(ret);
        // The one of its futexes that it was for is known now, and read from the array.
        let place = usize::try_from(ret).unwrap_or(0);
        let lock = &self.locks[waiting.locks[place]];
        let (address, is_shared) = (lock.address(), lock.is_shared);
        let (edge, stack) = (self.threads[at].edge, USER_STACK + self.here);
        match wait {
            Some(wait) if self.is_over => {
                self.book
                    .outlasts(wait, edge.expect("the window's end"), stack);
            }
            _ if self.is_over => (),
            Some(mut wait) => {
                (wait.key.address, wait.key.is_shared) = (address, is_shared);
                self.book.returns(wait, self.now, ret, edge, stack);
            }
            None if waiting.is_hidden => self.book.told[0] += 1,
            // The second part of a call was begun by the first.
            None if waiting.is_restarted => (),
            None if ret == ERESTARTSYS || ret == ERESTART_RESTARTBLOCK => (),
            // It has got its lock, perhaps by spinning.
            None if ret >= 0 && PI_WAITS.contains(&waiting.operation) => (),
            None => {
                let mut key = self.key(at, &waiting);
                (key.address, key.is_shared) = (address, is_shared);
                let value = waiting.values.get(place).unwrap_or(&waiting.values[0]);
                self.book.is_raced(key, *value);
            }
        }
        if ret == ERESTART_RESTARTBLOCK {
            self.asks(at, RESTART, [0; 6]);
            waiting.wait = None;
            waiting.is_hidden = false;
            waiting.woken = None;
            waiting.moved_to = None;
            waiting.is_restarted = true;
            self.threads[at].call = Call::Wait(waiting);
        } else {
            self.leaves_call(at);
        }
    }
}
