//! Wakeups of threads that sleep in futex calls, and the end of the window.

use super::{Call, Futexes, LOCKS, Place, Thread};

impl Futexes {
    /// A timeout or a signal, in an interrupt upon another thread that does not wake anybody itself, or upon nobody.
    pub(super) fn interrupt(&mut self, at: usize) {
        let hit = self.rng.usize(0..self.threads.len());
        let thread = &self.threads[hit];
        let fits = thread.place == Place::Running && !matches!(thread.call, Call::Wake { .. });
        self.is_woken(at, fits.then_some(hit), false);
    }

    /// A thread in a waking call wakes one that sleeps for the same lock; of a private one, of its own process.
    pub(super) fn wakes(&mut self, at: usize, of: usize) {
        let tgid = self.threads[at].tgid;
        let sleeps = |thread: &Thread| {
            let is_near = Self::is_shared(of) || thread.tgid == tgid;
            thread.place == Place::Asleep
                && is_near
                && matches!(thread.call, Call::Wait { lock, .. } if lock == of)
        };
        let sleepers: Vec<usize> = (0..self.threads.len())
            .filter(|at| sleeps(&self.threads[*at]))
            .collect();
        let Some(sleeper) = self.rng.choice(sleepers) else {
            return self.returns(at);
        };
        if let Call::Wake { woken, .. } = &mut self.threads[at].call {
            *woken += 1;
        }
        self.is_woken(sleeper, Some(at), true);
    }

    pub(super) fn is_woken(&mut self, at: usize, by: Option<usize>, by_call: bool) {
        let is_hidden = self.rng.u32(0..16) == 0;
        if !is_hidden {
            self.set(by);
            self.programs.waking(self.threads[at].task);
        }
        self.place(at, Place::Queued);
        let waker = by
            .filter(|_| by_call)
            .map(|by| (self.threads[by].tid, self.threads[by].tgid));
        let now = self.now;
        if let Call::Wait { wait, is_woken, .. } = &mut self.threads[at].call {
            *is_woken |= by_call;
            if let Some(wait) = wait.as_mut().filter(|_| !is_hidden) {
                wait.queued_ns = Some(now);
                wait.holder = waker.or(wait.holder);
            }
        }
    }

    /// The clock closes the window; threads go on for a while before the iterator comes by.
    pub(crate) fn close(&mut self) {
        self.now += 1;
        let end_ns = self.now;
        self.programs.end(end_ns);
        for thread in &self.threads {
            if let Call::Wait {
                lock,
                operation,
                wait: Some(wait),
                ..
            } = thread.call
            {
                let row = self.rows.entry((lock, operation, thread.tgid)).or_default();
                row.waits.push(wait.open(thread.tid, end_ns));
            }
        }
        self.is_over = true;
        for _ in 0..self.threads.len() * 4 {
            self.late_step();
        }
        for at in 0..self.threads.len() {
            self.set(None);
            self.programs.close(self.threads[at].task);
        }
    }

    /// A [`Self::step`] in which no thread ends: what it waited for would go with it.
    fn late_step(&mut self) {
        self.now += 1_000;
        let at = self.rng.usize(0..self.threads.len());
        match (self.threads[at].place, self.threads[at].call) {
            (Place::Queued, _) => self.runs(at),
            (Place::Asleep, _) => self.interrupt(at),
            (Place::Running, Call::Wait { .. }) => self.returns(at),
            (Place::Running, Call::Wake { lock, .. }) => self.wakes(at, lock),
            (Place::Running, Call::None) => {
                let lock = self.rng.usize(0..LOCKS);
                self.begin_wait(at, lock);
                self.enters(at);
                self.sleeps(at, false);
            }
            (Place::Running, _) => self.is_preempted(at),
        }
    }
}
