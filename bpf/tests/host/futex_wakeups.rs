//! Wakeups of threads that sleep in futex calls, and requeues.

use super::{Call, Futexes, KERNEL_STACK, Place, USER_STACK, WAITV, Waiting};
use crate::calling::Holder;
use crate::futex_locks::PI_WAITS;

impl Futexes {
    /// A timeout or a signal, in an interrupt upon a thread, or upon nobody. Should its thread sleep again, then for the first futex.
    pub(super) fn interrupt(&mut self, at: usize) {
        let hit = self.rng.usize(0..self.threads.len());
        let mut fits = self.threads[hit].place == Place::Running;
        if let Call::Wait(waiting) = &self.threads[at].call {
            // Nobody could tell it from a wakeup by one to whose futex it has been moved.
            fits &= !matches!(self.releases(hit, waiting), Some(Some(_)));
        }
        if let Call::Wait(waiting) = &mut self.threads[at].call {
            waiting.moved_to = None;
        }
        self.is_woken(at, fits.then_some(hit), None);
    }

    /// Threads that sleep where a call of this one, through these futexes, finds them: which of their own futexes that is.
    fn sleepers(&self, at: usize, locks: &[usize]) -> Vec<(usize, usize)> {
        let tgid = self.threads[at].tgid;
        let near = |lock: usize, thread: usize| {
            self.locks[lock].is_shared || self.threads[thread].tgid == tgid
        };
        let mut all = Vec::new();
        for (sleeper, thread) in self.threads.iter().enumerate() {
            let Call::Wait(waiting) = &thread.call else {
                continue;
            };
            let on = match waiting.moved_to {
                Some(to) => vec![to],
                None => waiting.locks.clone(),
            };
            let place = on
                .iter()
                .position(|lock| locks.contains(lock) && near(*lock, sleeper));
            if thread.place == Place::Asleep && waiting.woken.is_none() {
                all.extend(place.map(|place| (sleeper, place)));
            }
        }
        all
    }

    /// A thread in a waking call wakes one that it can; who ends wakes whoever waits for a thread of its process, or a robust lock.
    pub(super) fn wakes(&mut self, at: usize) {
        let Call::Wake { locks, is_exit, .. } = self.threads[at].call.clone() else {
            return;
        };
        let locks = if is_exit {
            (0..self.locks.len()).collect()
        } else {
            locks
        };
        let sleepers = self.sleepers(at, &locks);
        let Some((sleeper, place)) = self.rng.choice(sleepers) else {
            return self.wake_returns(at);
        };
        self.counts(at);
        self.is_woken(sleeper, Some(at), Some(place));
    }

    fn counts(&mut self, at: usize) {
        if let Call::Wake { count, .. } = &mut self.threads[at].call {
            *count += 1;
        }
    }

    /// A requeue moves those that have not been moved yet, without waking them, and returns.
    pub(super) fn moves(&mut self, at: usize) {
        let Call::Wake {
            locks,
            to: Some(to),
            ..
        } = self.threads[at].call.clone()
        else {
            return self.wakes(at);
        };
        let can_move = |sleeper: usize| match &self.threads[sleeper].call {
            Call::Wait(waiting) => {
                waiting.operation != WAITV
                    && waiting.moved_to.is_none()
                    && !PI_WAITS.contains(&waiting.operation)
            }
            _ => false,
        };
        let sleepers = self.sleepers(at, &locks).into_iter();
        let sleepers: Vec<_> = sleepers.filter(|(sleeper, _)| can_move(*sleeper)).collect();
        for (sleeper, _) in sleepers {
            if let Call::Wait(waiting) = &mut self.threads[sleeper].call {
                waiting.moved_to = Some(to);
            }
            self.counts(at);
        }
        self.wake_returns(at);
    }

    /// All that the call that a thread is in tells of a wait that ends under it: nothing, that it may be the one that ends it, or that
    /// it has been moved before, when and to which futex.
    fn releases(&self, by: usize, waiting: &Waiting) -> Option<Option<(u64, u64)>> {
        let Call::Wake {
            locks, is_exit, to, ..
        } = &self.threads[by].call
        else {
            return None;
        };
        let begin_ns = waiting.wait.as_ref()?.begin_ns;
        if *is_exit || waiting.operation == WAITV {
            return Some(None);
        }
        let own = waiting.locks[0];
        if locks.contains(&own) || *to == Some(own) {
            return Some(None);
        }
        let tgid = self.threads[by].tgid;
        let requeue = self
            .requeues
            .iter()
            .find(|(from, to, of, _)| (*from, *to, *of) == (own, locks[0], tgid))
            .filter(|(.., at_ns)| *at_ns >= begin_ns);
        match requeue {
            Some((.., at_ns)) => Some(Some((self.locks[locks[0]].address(), *at_ns))),
            None => (self.locks[own].is_shared && self.locks[locks[0]].is_shared).then_some(None),
        }
    }

    /// `place`: the one of its futexes that a call wakes it through.
    pub(super) fn is_woken(&mut self, at: usize, by: Option<usize>, place: Option<usize>) {
        let is_hidden = self.rng.u32(0..16) == 0;
        if !is_hidden {
            self.set(by);
            self.programs.waking(self.threads[at].task);
        }
        let was_asleep = self.threads[at].place == Place::Asleep;
        if was_asleep {
            self.place(at, Place::Queued);
        }
        let (now, is_over) = (self.now, self.is_over);
        let Call::Wait(mut waiting) = self.threads[at].call.clone() else {
            return;
        };
        waiting.woken = waiting.woken.or(place);
        let release = by.and_then(|by| Some((by, self.releases(by, &waiting)?)));
        if let Some(wait) = waiting.wait.as_mut().filter(|_| !is_hidden && !is_over) {
            wait.queued_ns = was_asleep.then_some(now);
            if let Some((by, moved)) = release {
                let by = &self.threads[by];
                wait.moved = moved.or(wait.moved);
                if self.book.is_taken {
                    self.book.told[9] += 1;
                } else {
                    wait.waker = Some(by.tid);
                    wait.seen[3] = self.wakers.number_of([
                        u64::from(by.tid),
                        // Its name is that letter.
                        u64::from(by.tid),
                        0,
                        KERNEL_STACK + self.here,
                        USER_STACK + self.here,
                        5,
                        1,
                        u64::from(by.tgid),
                    ]);
                }
                if !self.book.is_taken && !wait.is_held_for_sure(wait.waker) {
                    wait.holder = Some(Holder::waker(by.tid, by.tgid));
                }
            }
        }
        self.threads[at].call = Call::Wait(waiting);
    }
}
