//! An account of waits on futexes, as threads had them: each a stretch of time, of which every interval has its piece.

use std::collections::{BTreeMap, BTreeSet};

use crate::calling::{Holder, OWNER};
use crate::host::buckets::bucket;

/// The operation that stands for the time after a requeue.
pub(crate) const REQUEUED: u8 = 69;

/// A row's lock: address, operation, whether processes share it, whether it is waited for until a time of day, the waiter's process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) address: u64,
    pub(crate) operation: u8,
    pub(crate) is_shared: bool,
    pub(crate) is_realtime: bool,
    pub(crate) tgid: u32,
}

#[derive(Clone)]
pub(crate) struct Wait {
    pub(crate) key: Key,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) begin_ns: u64,
    /// Up to there it spins; `None`: it does still.
    pub(crate) slept_ns: Option<u64>,
    /// Times in which it could run and did not, and the beginning of the present one.
    pub(crate) queues: Vec<(u64, u64)>,
    pub(crate) queued_ns: Option<u64>,
    pub(crate) holder: Option<Holder>,
    /// The place in which the lock names that holder, 0 if it does not; the word that the waiter expects.
    pub(crate) evidence: [u64; 2],
    pub(crate) waker: Option<u32>,
    /// Mode, kernel stack, user stack, and the waker's record.
    pub(crate) seen: [u64; 4],
    /// It was moved to this address then.
    pub(crate) moved: Option<(u64, u64)>,
    /// Up to there it is in the books.
    pub(crate) told_ns: Option<u64>,
}

impl Wait {
    /// Asleep from the beginning on.
    pub(crate) fn at(key: Key, tid: u32, begin_ns: u64) -> Self {
        Self {
            key,
            tid,
            tgid: key.tgid,
            begin_ns,
            slept_ns: Some(begin_ns),
            queues: Vec::new(),
            queued_ns: None,
            holder: None,
            evidence: [0; 2],
            waker: None,
            seen: [0; 4],
            moved: None,
            told_ns: None,
        }
    }

    pub(crate) fn runs(&mut self, now: u64) {
        let queued = self.queued_ns.take();
        self.queues.extend(queued.map(|since| (since, now)));
    }

    /// True: whom the lock names can be told to have it if this thread ends the wait; of a lock that processes share only then.
    pub(crate) fn is_held_for_sure(&self, waker: Option<u32>) -> bool {
        self.holder.is_some_and(|holder| {
            holder.kind != OWNER || !self.key.is_shared || waker == Some(holder.tid)
        })
    }

    pub(crate) fn is_looked_at(&mut self) {
        if !self.is_held_for_sure(self.waker) {
            self.holder = None;
        }
    }

    /// Both parts of a wait that was moved.
    fn parts(self) -> (Option<Self>, Self) {
        let Some((address, at_ns)) = self.moved else {
            return (None, self);
        };
        let begin_ns = self.told_ns.map_or(at_ns, |told| at_ns.max(told));
        let key = Key {
            address,
            operation: REQUEUED,
            ..self.key
        };
        let second = Self {
            seen: self.seen,
            queues: self.queues.clone(),
            holder: self.holder,
            ..Self::at(key, self.tid, begin_ns)
        };
        let [mode, kernel_stack, user_stack, _] = self.seen;
        let first = Self {
            holder: None,
            seen: [mode, kernel_stack, user_stack, 0],
            ..self
        };
        (Some(first).filter(|_| begin_ns == at_ns), second)
    }
}

fn overlap_ns((from, to): (u64, u64), (after, before): (u64, u64)) -> u64 {
    to.min(before).saturating_sub(from.max(after))
}

/// Rows of one table by lock and what else tells them apart.
type Table = BTreeMap<(Key, Vec<u64>), Vec<u64>>;

/// An interval that is over, and not looked at yet.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) ns: u64,
    pub(crate) half: usize,
}

#[derive(Default)]
pub(crate) struct Book {
    /// By half: locks, buckets, waiters, holders.
    tables: [[Table; 4]; 2],
    /// Locks that are known, with the evidence of the first owner that was found.
    described: BTreeMap<Key, [u64; 2]>,
    /// The half that what ends now goes to.
    pub(crate) half: usize,
    pub(crate) is_full: bool,
    /// Locks, by half, at whose maximum somebody is at work for good.
    stalled: BTreeSet<(usize, Key)>,
    /// Like `host_told`'s.
    pub(crate) told: [u64; 13],
    /// The 32-bit process, if there is one.
    pub(crate) compat_tgid: Option<u32>,
    /// Scratches are in use.
    pub(crate) is_taken: bool,
}

/// The end of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Over,
    GivenUp,
}

impl Book {
    /// A book for this process of 32-bit programs.
    pub(crate) fn of(compat_tgid: Option<u32>) -> Self {
        Self {
            compat_tgid,
            ..Self::default()
        }
    }

    fn row(
        &mut self,
        half: usize,
        table: usize,
        key: (Key, Vec<u64>),
        sums: usize,
    ) -> Option<&mut Vec<u64>> {
        let is_full = self.is_full;
        let table = &mut self.tables[half][table];
        if is_full && !table.contains_key(&key) {
            return None;
        }
        Some(table.entry(key).or_insert_with(|| vec![0; sums]))
    }

    fn add_bucket(&mut self, half: usize, key: Key, length_ns: u64) {
        let key = (key, vec![bucket(length_ns).into()]);
        match self.row(half, 1, key, 1) {
            Some(row) => row[0] += 1,
            None => self.told[4] += 1,
        }
    }

    /// Adds the piece of a wait that ends at `upto`.
    fn add(&mut self, half: usize, wait: &Wait, upto: u64, end: End) {
        let piece = (wait.told_ns.unwrap_or(wait.begin_ns), upto);
        let (length_ns, total_ns) = (upto - wait.begin_ns, piece.1 - piece.0);
        let spin_ns = overlap_ns((wait.begin_ns, wait.slept_ns.unwrap_or(upto)), piece);
        let last = wait.queued_ns.map(|since| (since, upto));
        let queues = wait.queues.iter().copied().chain(last);
        let run_queue_ns: u64 = queues.map(|queue| overlap_ns(queue, piece)).sum();
        let is_first = wait.told_ns.is_none();
        let count = u64::from(is_first);
        let is_stalled = self.stalled.contains(&(half, wait.key));
        let mut raced = 0;
        match self.row(half, 0, (wait.key, Vec::new()), 10) {
            Some(row) => {
                row[0] += count;
                row[1] += total_ns;
                row[2] += if is_first { 0 } else { total_ns };
                raced = u64::from(is_stalled && length_ns > row[3]);
                row[3] = row[3].max(length_ns);
                row[4] += spin_ns;
                row[5] += total_ns - spin_ns;
                row[6] += run_queue_ns;
                row[8] += u64::from(end == End::GivenUp);
                row[9] += u64::from(end == End::Open);
                if is_first {
                    self.add_bucket(half, wait.key, length_ns);
                }
            }
            None => {
                self.told[2] += 1;
                self.told[3] += total_ns;
            }
        }
        self.told[10] += raced;
        let who = [wait.tgid, wait.tid].map(u64::from);
        let who = [who.as_slice(), &wait.seen].concat();
        match self.row(half, 2, (wait.key, who), 4) {
            Some(row) => {
                row[0] += count;
                row[1] += total_ns;
                row[2] += run_queue_ns;
                row[3] = row[3].max(length_ns);
            }
            None => {
                self.told[5] += 1;
                self.told[6] += total_ns;
            }
        }
        let Some(holder) = wait.holder else { return };
        let [tgid, tid] = [holder.tgid, holder.tid].map(u64::from);
        let who = vec![holder.kind, tgid, tid, holder.stack];
        match self.row(half, 3, (wait.key, who), 5) {
            Some(row) => {
                row[0] += count;
                row[1] += total_ns;
                row[2 + holder.state] += count;
            }
            None => self.told[7] += 1,
        }
    }

    /// A program that is about to raise a maximum does not go on.
    pub(crate) fn stalls(&mut self) {
        for half in 0..2 {
            let keys = self.tables[half][0].keys();
            self.stalled.extend(keys.map(|(key, _)| (half, *key)));
        }
    }

    /// A lock that is seen for the first time is described, if there is room.
    fn describe(&mut self, key: Key, evidence: [u64; 2]) {
        if self.is_taken || self.is_full && !self.described.contains_key(&key) {
            self.told[8] += 1;
        } else {
            let known = self.described.entry(key).or_insert(evidence);
            if known[0] == 0 && evidence[0] > 0 {
                *known = evidence;
            }
        }
    }

    /// A wait that is not over at an interval's end.
    pub(crate) fn is_open(&mut self, wait: &mut Wait, edge: Edge) {
        if wait.begin_ns < edge.ns {
            wait.is_looked_at();
            self.describe(wait.key, wait.evidence);
            self.carry(wait, edge);
        }
    }

    /// Its user stack is walked, and the lock described, if there is a scratch for it.
    fn is_walked(&mut self, wait: &mut Wait, stack: u64) {
        if self.is_taken {
            self.told[9] += 1;
            return;
        }
        wait.seen[2] = stack;
        self.describe(wait.key, wait.evidence);
    }

    /// A call that waited returns behind the window's end.
    pub(crate) fn outlasts(&mut self, mut wait: Wait, edge: Edge, stack: u64) {
        if wait.begin_ns < edge.ns && wait.told_ns.is_none_or(|told| told < edge.ns) {
            wait.is_looked_at();
            self.is_walked(&mut wait, stack);
            self.carry(&mut wait, edge);
        }
    }

    fn carry(&mut self, wait: &mut Wait, edge: Edge) {
        self.add(edge.half, wait, edge.ns, End::Open);
        wait.told_ns = Some(edge.ns);
    }

    /// A wait that ends at `upto`; `edge`: an interval has ended before, and nobody has looked at the thread since.
    pub(crate) fn is_over_at(&mut self, mut wait: Wait, upto: u64, end: End, edge: Option<Edge>) {
        let half = match edge {
            Some(edge) if upto <= edge.ns => edge.half,
            Some(edge) if wait.told_ns.unwrap_or(wait.begin_ns) < edge.ns => {
                self.carry(&mut wait, edge);
                self.half
            }
            _ => self.half,
        };
        self.add(half, &wait, upto, end);
    }

    /// A call that waited returns.
    pub(crate) fn returns(
        &mut self,
        mut wait: Wait,
        now: u64,
        ret: i64,
        edge: Option<Edge>,
        stack: u64,
    ) {
        // A thread that waited in vain was not kept by whoever woke it.
        if ret < 0 {
            wait.holder = wait.holder.filter(|holder| holder.kind == OWNER);
            wait.seen[3] = 0;
        }
        wait.is_looked_at();
        self.is_walked(&mut wait, stack);
        self.told[1] += 1;
        let (first, second) = wait.parts();
        if second.key.operation == REQUEUED {
            self.describe(second.key, second.evidence);
        }
        if let Some(first) = first {
            self.is_over_at(first, second.begin_ns, End::Over, edge);
        }
        let end = if ret < 0 { End::GivenUp } else { End::Over };
        self.is_over_at(second, now, end, edge);
    }

    /// A call that did not sleep, though it was about to.
    pub(crate) fn is_raced(&mut self, key: Key, value: u32) {
        self.describe(key, [0, u64::from(value)]);
        match self.row(self.half, 0, (key, Vec::new()), 10) {
            Some(row) => row[7] += 1,
            None => self.told[2] += 1,
        }
    }

    /// Locks that are known, in the form of `host_tell`: address, operation, kind, process, evidence.
    pub(crate) fn known(&self) -> Vec<[u64; 6]> {
        let numbers = |(key, [place, value]): (&Key, &[u64; 2])| {
            let [address, operation, kind, tgid] = self.lock(*key);
            [address, operation, kind, tgid, *place, *value]
        };
        self.described.iter().map(numbers).collect()
    }

    pub(crate) fn lock(&self, key: Key) -> [u64; 4] {
        let is_compat = self.compat_tgid == Some(key.tgid);
        // The bits of `enum futex_call_flags`.
        let kind = [key.is_shared, key.is_realtime, is_compat].map(u64::from);
        let kind = kind[0] | kind[1] << 1 | kind[2] << 2;
        let (operation, tgid) = (u64::from(key.operation), u64::from(key.tgid));
        [key.address, operation, kind, tgid]
    }

    /// Takes a half's rows, in the form of `Programs::take`.
    pub(crate) fn take(&mut self, half: usize) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        self.stalled.retain(|(of, _)| *of != half);
        for (number, table) in std::mem::take(&mut self.tables[half])
            .into_iter()
            .enumerate()
        {
            for ((key, who), sums) in table {
                let lock = self.lock(key);
                rows.push([&[number as u64], lock.as_slice(), &who, &sums].concat());
            }
        }
        rows.retain(|row| says_something(row));
        rows.sort();
        rows
    }
}

/// True: a row has sums other than 0.
pub(crate) fn says_something(row: &[u64]) -> bool {
    let keys = 5 + [0, 1, 6, 4][row[0] as usize];
    row[keys..].iter().any(|sum| *sum > 0)
}
