//! Those who are no targets: a stranger, and idle tasks under interrupts.

use super::locks::SPIN;
use super::{Owners, Place, STRANGER, UNINTERRUPTIBLE};

impl Owners {
    /// Nothing of that counts.
    pub(super) fn stranger_acts(&mut self) {
        self.set(Some(STRANGER));
        let (task, idle) = (self.threads[STRANGER].task, self.idle);
        match self.threads[STRANGER].place {
            Place::Running => {
                let lock = self.rng.choice(&self.locks).expect("some");
                self.programs.begins(lock.address, lock.class.flags()[0]);
                if self.rng.bool() {
                    self.programs.ends(lock.address, 0);
                } else {
                    self.programs
                        .host
                        .switch(false, [task, idle], Some(UNINTERRUPTIBLE));
                    self.place(STRANGER, Place::Asleep);
                }
            }
            Place::Asleep => {
                self.programs.waking(task);
                self.place(STRANGER, Place::Queued);
            }
            Place::Queued => {
                self.programs.host.switch(false, [idle, task], Some(0));
                self.place(STRANGER, Place::Running);
            }
        }
    }

    /// An interrupt spins upon an idle task, also amid another one, or is done.
    pub(super) fn is_interrupted(&mut self, at: usize) {
        let spins = |lock: &usize| self.locks[*lock].class.spins();
        let all: Vec<usize> = (0..self.locks.len()).filter(spins).collect();
        if self.rng.bool() {
            let lock = self.rng.choice(all).expect("one");
            self.begins_at(at, lock, None);
        } else {
            self.ends(at);
        }
    }

    /// No interrupt lasts until an interval's rows are read, and no iterator comes by idle tasks.
    pub(super) fn interrupts_end(&mut self) {
        for at in STRANGER + 1..self.threads.len() {
            while !self.threads[at].waits.is_empty() {
                self.now += 1;
                self.ends(at);
            }
        }
    }

    /// An interrupt spins upon the idle task that goes, and nobody sees the end of that.
    pub(super) fn interrupt_spins(&mut self) {
        let spinning = self
            .locks
            .iter()
            .find(|lock| lock.class.spins())
            .expect("one");
        if self.rng.u32(0..16) == 0 {
            self.programs.begins(spinning.address, SPIN);
            self.lost.unended += u64::from(!self.is_over());
        }
    }
}
