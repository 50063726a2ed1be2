//! A log of waits, and all that the oracle of live tests makes of it.

use std::collections::BTreeMap;

use oracle::{Event, Kind, Logs, Pair, kernel_lock};

use super::Owners;

/// By thread number and address: waits, their time and the longest one.
pub(crate) type Sums = BTreeMap<(u64, u64), [u64; 3]>;

impl Owners {
    /// A thread goes by its place: the kernel calls all idle tasks 0.
    fn logs(&mut self, ns: u64, kind: Kind) {
        self.log.push(Event { ns, cpu: 0, kind });
    }

    /// `goes_on`: a mutex's waiter begins its next part. One whose end was not seen begins anew, as only other locks' do in kernels.
    pub(super) fn logs_begin(&mut self, at: usize, lock: usize, goes_on: bool) {
        let begin = Kind::Contention {
            tid: at as u32,
            lock: self.locks[lock].address as u64,
            is_mutex: goes_on,
        };
        self.logs(self.now, begin);
    }

    pub(super) fn logs_end(&mut self, at: usize, lock: usize, ns: u64) {
        let (tid, lock) = (at as u32, self.locks[lock].address as u64);
        self.logs(ns, Kind::Contended { tid, lock });
    }

    /// Waits inside the window, which is over.
    pub(crate) fn oracles(&self) -> Sums {
        let window = self.open_ns.expect("a window")..self.end_ns.expect("its end");
        let mut sums = Sums::new();
        for (at, thread) in self.threads.iter().enumerate() {
            let is_of = |event: &&Event| match event.kind {
                Kind::Contention { tid, .. } | Kind::Contended { tid, .. } => tid == at as u32,
                _ => false,
            };
            let log: Vec<Event> = self.log.iter().filter(is_of).copied().collect();
            let logs = Logs {
                before: log.clone(),
                after: log,
                missed: 0,
            };
            let waits = kernel_lock::waits(&logs, at as u32);
            assert!(waits.unsure.is_empty(), "the same log");
            for (lock, pairs) in waits.by_lock {
                let is_inside = |pair: &&Pair| pair.early.end_ns >= window.start;
                for pair in pairs.iter().filter(is_inside) {
                    let ns = pair.clipped(&window).least_ns();
                    add(&mut sums, (thread.tid.into(), lock), [1, ns, ns]);
                }
            }
        }
        sums
    }
}

fn add(sums: &mut Sums, key: (u64, u64), [count, total_ns, max_ns]: [u64; 3]) {
    let sum = sums.entry(key).or_default();
    *sum = [sum[0] + count, sum[1] + total_ns, sum[2].max(max_ns)];
}

/// Adds rows of waiters.
pub(crate) fn add_rows(sums: &mut Sums, rows: &[Vec<u64>]) {
    for row in rows.iter().filter(|row| row[0] == 2) {
        add(sums, (row[6], row[1]), [row[11], row[12], row[14]]);
    }
}
