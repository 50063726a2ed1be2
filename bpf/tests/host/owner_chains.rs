//! Chains: waits for a lock whose holder waited for another one meanwhile.

use std::collections::BTreeMap;

use super::locks::name_of;
use super::{Owners, STRANGER, Waiting};
use crate::futex_account::{Key, OWNER};

/// Waits that a thread remembers.
const REMEMBERED: usize = 4;
/// Shorter ones are forgotten.
const SHORTEST_NS: u64 = 20_000;

/// A wait that is over.
#[derive(Clone, Copy)]
pub(super) struct Past {
    key: Key,
    begin_ns: u64,
    end_ns: u64,
    released_ns: u64,
    holder: Link,
    /// Row of what its holder waited for.
    next: Option<usize>,
}

/// A thread that is waited for, and the kind of holder that it is; zeros: nobody knows.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    tid: u32,
    tgid: u32,
    kind: u64,
}

/// A row's lock, waiter, holder, and the row of what the holder waits for.
type RowKey = (Key, u32, u32, Option<usize>);

struct Row {
    key: RowKey,
    waiter_tgid: u32,
    holder: Link,
    /// Sums by half: waits, their ns, ns of what is next.
    halves: [[u64; 3]; 2],
}

#[derive(Default)]
pub(super) struct Chains {
    rows: Vec<Row>,
    places: BTreeMap<RowKey, usize>,
    pub(super) full: u64,
}

impl Chains {
    /// A row of this key; the first one to ask for it says whose processes these are.
    fn row(&mut self, key: RowKey, waiter_tgid: u32, holder: Link, is_full: bool) -> Option<usize> {
        let known = self.places.get(&key).copied();
        if known.is_none() && is_full {
            self.full += 1;
            return None;
        }
        Some(known.unwrap_or_else(|| {
            self.rows.push(Row {
                key,
                waiter_tgid,
                holder,
                halves: [[0; 3]; 2],
            });
            self.places.insert(key, self.rows.len() - 1);
            self.rows.len() - 1
        }))
    }

    /// A row's links down to the last one, told by locks and threads; then what else it says.
    fn numbers(&self, at: usize) -> Vec<u64> {
        let row = &self.rows[at];
        let mut numbers = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            let (key, waiter, holder, behind) = self.rows[at].key;
            numbers.extend(link(key.address, key.operation, key.tgid, waiter, holder));
            next = behind;
        }
        let (_, waiter, holder, _) = row.key;
        numbers.extend([u64::from(row.waiter_tgid), u64::from(row.holder.tgid)]);
        // Nobody is asked for the name of nobody.
        let holder = if row.holder.kind == 0 {
            0
        } else {
            name_of(holder)
        };
        numbers.extend([row.holder.kind, name_of(waiter), holder]);
        numbers.extend(row.halves.iter().flatten());
        numbers
    }
}

fn link(address: u64, operation: u8, tgid: u32, waiter: u32, holder: u32) -> [u64; 5] {
    let [tgid, waiter, holder] = [tgid, waiter, holder].map(u64::from);
    [address, u64::from(operation), tgid, waiter, holder]
}

fn overlap_ns(past: &Past, from: u64, to: u64) -> u64 {
    to.min(past.end_ns).saturating_sub(from.max(past.begin_ns))
}

impl Owners {
    /// A wait in which the thread slept, if it was long enough and all of it in the window.
    pub(super) fn is_past(&mut self, at: usize, waiting: &Waiting) {
        let is_inside = self.open_ns.is_some_and(|open| waiting.begin_ns >= open);
        if !is_inside || !self.is_open_at(self.now) || self.now - waiting.begin_ns < SHORTEST_NS {
            return;
        }
        let next = self.is_chained(at, waiting);
        let holder = waiting.wait.holder.map_or(Link::default(), |holder| Link {
            tid: holder.tid,
            tgid: holder.tgid,
            kind: holder.kind,
        });
        let past = &mut self.threads[at].past;
        past.push_back(Past {
            key: waiting.wait.key,
            begin_ns: waiting.begin_ns,
            end_ns: self.now,
            released_ns: waiting.released.map_or(self.now, |(ns, _)| ns),
            holder,
            next,
        });
        if past.len() > REMEMBERED {
            past.pop_front();
        }
    }

    /// The wait's holder waited for another lock during it: the longest such wait, one in which nobody had released the holder, and
    /// which began when the holder had our lock for sure. The row of that.
    fn is_chained(&mut self, at: usize, waiting: &Waiting) -> Option<usize> {
        if [c"bpf_task_from_pid", c"bpf_task_from_vpid"].contains(&self.lacks) {
            return None;
        }
        let holder = waiting.wait.holder.filter(|holder| holder.kind == OWNER)?;
        let (from, to) = (waiting.begin_ns, self.now);
        let releaser = waiting.released.filter(|(_, tid)| *tid == holder.tid);
        let sure_ns = releaser.map_or(from, |(ns, _)| ns);
        let of = self.threads[..STRANGER]
            .iter()
            .find(|thread| thread.tid == holder.tid)?;
        let counts = |past: &&Past| past.released_ns > from && past.begin_ns <= sure_ns;
        let candidates = of.past.iter().filter(counts);
        let longest = *candidates.max_by_key(|past| overlap_ns(past, from, to))?;
        let next_ns = overlap_ns(&longest, from, to);
        if next_ns == 0 {
            return None;
        }
        let is_full = self.book.is_full;
        let key = (longest.key, holder.tid, longest.holder.tid, longest.next);
        let next = self
            .chained
            .row(key, holder.tgid, longest.holder, is_full)?;
        let (tid, tgid) = (self.threads[at].tid, self.threads[at].tgid);
        let key = (waiting.wait.key, tid, holder.tid, Some(next));
        let link = Link {
            tid: holder.tid,
            tgid: holder.tgid,
            kind: OWNER,
        };
        if let Some(row) = self.chained.row(key, tgid, link, is_full) {
            let half = &mut self.chained.rows[row].halves[self.book.half];
            half[0] += 1;
            half[1] += to - from;
            half[2] += next_ns;
        }
        Some(next)
    }

    /// Chains of the programs and of the model: in the form of `Chains::numbers`.
    pub(crate) fn chains(&self) -> [Vec<Vec<u64>>; 2] {
        let rows = self.programs.tell();
        let rows: Vec<_> = rows.iter().filter(|row| row[0] == 4).collect();
        let by_id: BTreeMap<u64, &Vec<u64>> = rows.iter().map(|row| (row[5], *row)).collect();
        assert_eq!(by_id.len(), rows.len(), "no two have the same id");
        let numbers = |row: &&Vec<u64>| {
            let mut numbers = Vec::new();
            let mut next = Some(*row);
            while let Some(row) = next {
                let [waiter, holder] = [row[7], row[8]].map(|tid| tid as u32);
                numbers.extend(link(row[1], row[2] as u8, row[4] as u32, waiter, holder));
                next = (row[6] != 0).then(|| by_id[&row[6]]);
            }
            let holder = if row[11] == 0 { 0 } else { row[13] };
            numbers.extend([row[9], row[10], row[11], row[12], holder]);
            numbers.extend(&row[14..]);
            numbers
        };
        let mut programs: Vec<_> = rows.iter().map(numbers).collect();
        let model = 0..self.chained.rows.len();
        let mut model: Vec<_> = model.map(|at| self.chained.numbers(at)).collect();
        programs.sort();
        model.sort();
        [programs, model]
    }
}
