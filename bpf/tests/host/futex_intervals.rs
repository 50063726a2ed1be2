//! Ends of intervals and of the window.

use super::{Call, Futexes, Place};
use crate::futex_account::Edge;

/// Longest time by which an end is known before it comes.
const AHEAD_NS: u64 = 8_000_000;
/// `STACK_ADDRESS` of host/no_stacks.h
const ADDRESS: u64 = 2;

impl Futexes {
    /// No table takes a new row from now on.
    pub(crate) fn fill(&mut self) {
        self.programs.fill();
        self.book.is_full = true;
    }

    /// An interval ends, now or in a moment; threads go on for a while before the iterator comes by. Rows of the programs, and of the
    /// model.
    pub(crate) fn turn(&mut self) -> [Vec<Vec<u64>>; 2] {
        let end_ns = self.now + 1 + self.rng.u64(0..AHEAD_NS);
        let half = self.programs.turn(end_ns, false);
        self.book.half = 1 - half as usize;
        let edge = self.is_to_end(end_ns, half);
        while self.now < edge.ns {
            // Some things happen at that very instant.
            self.now = edge.ns.min(self.now + self.rng.u64(1..AHEAD_NS / 8));
            let at = self.rng.usize(0..self.threads.len());
            self.acts_at(at);
        }
        for _ in 0..4 * self.threads.len() {
            self.now += self.rng.u64(1..2_000_000);
            let at = self.rng.usize(0..self.threads.len());
            if self.is_split_well(at, edge) {
                self.acts_at(at);
            }
        }
        self.comes_by();
        let programs = self.programs.take(half, &mut self.wakers);
        [programs, self.book.take(edge.half)]
    }

    fn is_to_end(&mut self, ns: u64, half: u32) -> Edge {
        let edge = Edge {
            ns,
            half: half as usize,
        };
        for thread in &mut self.threads {
            thread.edge = Some(edge);
        }
        edge
    }

    /// Locks that are known: with an owner's place, and what user space is to look up, the address in its process.
    pub(crate) fn assert_known(&self, of: &str) {
        let mut told = self.programs.tell();
        for lock in &told {
            let expected = [lock[1], 0, 0, 0, 0, 1, ADDRESS, lock[4]];
            assert_eq!(self.programs.interned(lock[5]), expected, "{of}: {lock:?}");
        }
        told.sort();
        let told = told
            .iter()
            .map(|lock| [lock[1], lock[2], lock[3], lock[4], lock[6], lock[7]]);
        let mut known = self.book.known();
        known.sort_unstable();
        assert!(told.eq(known), "{of}: known locks");
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
            self.programs.stands(self.threads[at].task, self.now);
            self.programs.close(self.threads[at].task);
            let handed = self.programs.handed();
            self.assert_handed(at, handed);
            let Some(edge) = self.threads[at].edge.take() else {
                continue;
            };
            if let Some(wait) = &mut self.threads[at].unreturned {
                self.book.is_open(wait, edge);
            }
            if let Call::Wait(waiting) = &mut self.threads[at].call
                && let Some(wait) = &mut waiting.wait
            {
                self.book.is_open(wait, edge);
            }
        }
    }

    /// A thread that waits at an interval's end is looked up by user space.
    fn assert_handed(&self, at: usize, handed: [u64; 9]) {
        let thread = &self.threads[at];
        let waits = match &thread.call {
            Call::Wait(waiting) => thread.unreturned.as_ref().or(waiting.wait.as_ref()),
            _ => thread.unreturned.as_ref(),
        };
        let edge = thread.edge.expect("an interval's end");
        let Some(wait) = waits.filter(|wait| wait.begin_ns < edge.ns) else {
            return assert_eq!(handed, [0; 9], "no open wait");
        };
        let [address, operation, kind, tgid] = self.book.lock(wait.key);
        let (process, tid) = (u64::from(thread.tgid), u64::from(thread.tid));
        let stands = [self.now, self.now + 1, process, tid, 1];
        let lock = [address, operation, kind, tgid];
        assert_eq!(handed[..4], lock, "lock of an open wait");
        assert_eq!(handed[4..], stands, "thread of an open wait");
    }

    /// The clock closes the window in a moment; threads go on for a while before the iterator comes by.
    pub(crate) fn close(&mut self) -> [Vec<Vec<u64>>; 2] {
        let end_ns = self.now + 1 + self.rng.u64(0..AHEAD_NS);
        let half = self.programs.turn(end_ns, true);
        let edge = self.is_to_end(end_ns, half);
        loop {
            self.now += self.rng.u64(1..AHEAD_NS / 8);
            if self.now >= end_ns {
                break;
            }
            let at = self.rng.usize(0..self.threads.len());
            self.acts_at(at);
        }
        self.is_over = true;
        for step in 0..self.threads.len() * 4 {
            // Much happens at that very instant.
            self.now = end_ns + (step / self.threads.len()) as u64 * 1_000;
            self.late_step();
        }
        self.comes_by();
        let programs = self.programs.take(half, &mut self.wakers);
        [programs, self.book.take(edge.half)]
    }

    /// A [`Self::step`] in which no thread ends: what it waited for would go with it.
    fn late_step(&mut self) {
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
