//! Those who are no targets: a stranger, and the idle task under an interrupt.

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

    /// An interrupt spins upon the idle task, and nobody sees the end of that.
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
