//! Ends of intervals and of the window, and what is told then.

use super::{Owners, Place, STRANGER, THREADS};
use crate::futex_account::Edge;

/// Longest time by which an end is known before it comes.
const AHEAD_NS: u64 = 100_000;

impl Owners {
    /// An interval ends, now or in a moment; threads go on for a while before the iterator comes by. Rows of the programs, and of the
    /// model.
    pub(crate) fn turn(&mut self, is_last: bool) -> [Vec<Vec<u64>>; 2] {
        self.now += 1;
        let edge_ns = self.now + self.rng.u64(0..AHEAD_NS);
        let half = self.programs.turn(edge_ns, is_last);
        let edge = Edge {
            ns: edge_ns,
            half: half as usize,
        };
        assert_eq!(edge.half, self.book.half, "the half that ends");
        if is_last {
            self.end_ns = Some(edge_ns);
        } else {
            self.book.half = 1 - edge.half;
        }
        for thread in &mut self.threads {
            thread.edge = Some(edge);
        }
        while self.now < edge_ns {
            // Some things happen at that very instant.
            let at = self.anyone();
            self.now = edge_ns.min(self.now + self.rng.u64(1..AHEAD_NS / 8));
            self.acts_at(at);
        }
        for _ in 0..2 * THREADS {
            let at = self.anyone();
            if self.is_split_well(at, edge) {
                self.acts_at(at);
            }
            self.now += self.rng.u64(1..30_000);
        }
        self.interrupts_end();
        self.comes_by();
        [self.rows(half), self.book.take(edge.half)]
    }

    /// True: what the thread does next is told apart from what it did before the interval's end. Time on a run queue is not: it is a
    /// sum.
    fn is_split_well(&self, at: usize, edge: Edge) -> bool {
        let thread = &self.threads[at];
        let mut lasting = thread
            .waits
            .iter()
            .filter(|wait| wait.wait.begin_ns < edge.ns);
        self.is_over() || lasting.next().is_none() || thread.place != Place::Queued
    }

    fn comes_by(&mut self) {
        for at in 0..=THREADS {
            self.set(None);
            self.programs.close(self.threads[at].task);
            let Some(edge) = self.threads[at].edge.take() else {
                continue;
            };
            if at == STRANGER {
                continue;
            }
            for waiting in std::mem::take(&mut self.threads[at].waits) {
                self.is_named(at, &waiting);
                let waiting = self.is_left_open(waiting, edge);
                if self.end_ns.is_some() {
                    self.logs_end(at, waiting.lock, edge.ns);
                }
                self.threads[at].waits.push(waiting);
            }
        }
    }

    /// Rows of the programs.
    fn rows(&mut self, half: u32) -> Vec<Vec<u64>> {
        let mut rows = self.programs.take(half, &mut self.wakers);
        for row in &mut rows {
            assert_eq!(row[3], 100, "nothing is a guess");
            row[3] = 0;
        }
        rows
    }

    /// Names that the programs know, and those of the model.
    pub(crate) fn names(&self) -> [Vec<Vec<u64>>; 2] {
        let mut programs = self.programs.tell();
        let model = self.named.iter().map(|(key, name)| {
            let lock = [
                4,
                key.address,
                u64::from(key.operation),
                100,
                u64::from(key.tgid),
            ];
            [lock.as_slice(), name].concat()
        });
        let mut model: Vec<_> = model.collect();
        programs.sort();
        model.sort();
        [programs, model]
    }

    /// The numbers of `host_told`, as they should be.
    pub(crate) fn lost(&self) -> [u64; 14] {
        let (lost, full) = (&self.lost, &self.book.told);
        [
            lost.unended,
            lost.unbegun,
            lost.begun_before,
            lost.unwalked,
            lost.holders_unwalked,
            full[10],
            full[2],
            full[3],
            full[4],
            full[5],
            full[6],
            full[7],
            lost.names_full,
            0,
        ]
    }
}
