//! Ends of intervals and of the window.

use super::{Call, Futexes, Place};
use crate::futex_account::Edge;

impl Futexes {
    /// No table takes a new row from now on.
    pub(crate) fn fill(&mut self) {
        self.programs.fill();
        self.book.is_full = true;
    }

    /// An interval ends; threads go on for a while before the iterator comes by. Rows of the programs, and of the model.
    pub(crate) fn turn(&mut self) -> [Vec<Vec<u64>>; 2] {
        self.now += 1;
        let half = self.programs.turn(self.now);
        let edge = Edge {
            ns: self.now,
            half: half as usize,
        };
        assert_eq!(edge.half, self.book.half, "the half that ends");
        self.book.half = 1 - edge.half;
        for thread in &mut self.threads {
            thread.edge = Some(edge);
        }
        for _ in 0..4 * self.threads.len() {
            self.now += self.rng.u64(1..2_000_000);
            let at = self.rng.usize(0..self.threads.len());
            if self.is_split_well(at, edge) {
                self.acts_at(at);
            }
        }
        self.comes_by();
        [self.programs.take(half), self.book.take(edge.half)]
    }

    /// True: what the thread does next is told apart from what it did before the interval's end. Time on a run queue and the end of
    /// spinning are not: they are sums.
    fn is_split_well(&mut self, at: usize, edge: Edge) -> bool {
        let place = self.threads[at].place;
        match self.wait_of(at) {
            Some(wait) if wait.begin_ns < edge.ns => {
                place != Place::Queued && wait.slept_ns.is_some()
            }
            _ => true,
        }
    }

    fn comes_by(&mut self) {
        for at in 0..self.threads.len() {
            self.set(None);
            self.programs.close(self.threads[at].task);
            let Some(edge) = self.threads[at].edge.take() else {
                continue;
            };
            if let Call::Wait(waiting) = &mut self.threads[at].call
                && let Some(wait) = &mut waiting.wait
            {
                self.book.is_open(wait, edge);
            }
        }
    }

    /// The clock closes the window; threads go on for a while before the iterator comes by.
    pub(crate) fn close(&mut self) -> [Vec<Vec<u64>>; 2] {
        self.now += 1;
        let half = self.programs.end(self.now);
        let edge = Edge {
            ns: self.now,
            half: half as usize,
        };
        for thread in &mut self.threads {
            if let Call::Wait(waiting) = &mut thread.call
                && let Some(wait) = &mut waiting.wait
            {
                self.book.is_open(wait, edge);
            }
        }
        self.is_over = true;
        for _ in 0..self.threads.len() * 4 {
            self.late_step();
        }
        self.comes_by();
        [self.programs.take(half), self.book.take(edge.half)]
    }

    /// A [`Self::step`] in which no thread ends: what it waited for would go with it.
    fn late_step(&mut self) {
        self.now += 1_000;
        let at = self.rng.usize(0..self.threads.len());
        match (self.threads[at].place, &self.threads[at].call) {
            (Place::Queued, _) => self.runs(at),
            (Place::Asleep, _) => self.interrupt(at),
            (Place::Running, Call::Wait { .. }) => self.wait_returns(at),
            (Place::Running, Call::Wake { is_exit: false, .. }) => self.wakes(at),
            (Place::Running, Call::None) => {
                self.waits(at);
                self.sleeps(at, false);
            }
            (Place::Running, _) => self.is_preempted(at),
        }
    }
}
