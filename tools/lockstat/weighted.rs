//! Locks out of windows, each added up by what its window stands for.

use std::collections::HashMap;

use profile::model::Task;
use trace::budget::{Looked, Series, Window, round_fairly};
use trace::histogram::Histogram;

use crate::row::{Holder, HolderKind, Identity, LockRow, Margins, Waiter};

/// Threads that waited when a window opened whose stacks are kept.
const MOST_MET: usize = 65_536;

/// Most locks of all windows together, and most waiters and holders of all those.
const MOST_LOCKS: usize = 1 << 15;
const MOST_WAITERS: usize = 1 << 18;
const MOST_HOLDERS: usize = 1 << 17;

/// What found no room: waits, and their time, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Homeless {
    pub(crate) locks: (u64, u64),
    pub(crate) waiters: (u64, u64),
    pub(crate) holders: u64,
}

/// How many more fit in.
struct Room {
    waiters: usize,
    holders: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            waiters: MOST_WAITERS,
            holders: MOST_HOLDERS,
        }
    }
}

/// The windows of an interval so far.
#[derive(Default)]
pub(crate) struct Sums {
    locks: HashMap<Identity, Sum>,
    room: Room,
    looked: Looked,
    /// That of a lock which nobody has waited for yet.
    silent: Series,
    /// Stacks of threads that waited when a window opened, by lock and thread.
    met: HashMap<(Identity, u32), u64>,
    random: u64,
}

/// One lock's.
struct Sum {
    /// Without waiters and holders.
    row: LockRow,
    waiters: HashMap<(Task, bool, u64, u64, u64), Waiter>,
    holders: HashMap<(Task, HolderKind, u64), Holder>,
    contentions: Series,
    total: Series,
}

impl Sums {
    /// The user stack of a thread that waits. Returns how many others had to be forgotten.
    pub(crate) fn meet(&mut self, lock: Identity, tid: u32, stack: u64) -> u64 {
        let mut forgotten = 0;
        if self.met.len() >= MOST_MET {
            forgotten = self.met.len() as u64;
            self.met.clear();
        }
        self.met.insert((lock, tid), stack);
        forgotten
    }

    /// Adds what a window has brought; returns what found no room.
    pub(crate) fn add(&mut self, rows: Vec<LockRow>, window: &Window) -> Homeless {
        let mut homeless = Homeless::default();
        let (open_ns, stratum_ns) = (window.open_ns(), window.stratum_ns);
        let mut scale = Scale::new(window.weight(), &mut self.random);
        let mut seen = HashMap::new();
        self.locks.values_mut().for_each(|sum| sum.row.open = 0);
        for mut row in rows {
            for waiter in row.waiters.iter_mut().filter(|waiter| waiter.user == 0) {
                let met = self.met.get(&(row.identity, waiter.task.tid));
                waiter.user = met.copied().unwrap_or(0);
            }
            let is_full = self.locks.len() >= MOST_LOCKS;
            if is_full && !self.locks.contains_key(&row.identity) {
                homeless.locks.0 += row.contentions;
                homeless.locks.1 += row.total_ns;
                continue;
            }
            seen.insert(row.identity, (row.contentions, row.total_ns));
            let silent = &self.silent;
            let sum = self.locks.entry(row.identity);
            let sum = sum.or_insert_with(|| Sum::new(&row, silent));
            sum.add(row, &mut scale, &mut self.room, &mut homeless);
        }
        for (identity, sum) in &mut self.locks {
            let (contentions, total_ns) = seen.get(identity).copied().unwrap_or_default();
            sum.contentions
                .push(contentions as f64, open_ns, stratum_ns);
            sum.total.push(total_ns as f64, open_ns, stratum_ns);
        }
        self.silent.push(0.0, open_ns, stratum_ns);
        self.looked.add(window);
        homeless
    }

    /// Ends the interval, `elapsed_ns` long: its locks, and the share of time that was looked at if that is not all.
    pub(crate) fn take(&mut self, elapsed_ns: u64) -> (Vec<LockRow>, Option<f64>) {
        let looked = std::mem::take(&mut self.looked);
        self.silent = Series::default();
        self.room = Room::default();
        let mut scale = Scale::new(looked.scale(elapsed_ns), &mut self.random);
        let (is_exact, share) = (looked.is_exact(), looked.share(elapsed_ns));
        let rows = self.locks.drain();
        let rows = rows.map(|(_, sum)| sum.finish(&mut scale));
        let rows = rows.map(|row| LockRow {
            margins: row.margins.filter(|_| !is_exact),
            ..row
        });
        let rows = rows.filter(|row| row.contentions > 0 || row.total_ns > 0);
        (rows.collect(), (!is_exact).then_some(share))
    }
}

impl Sum {
    fn new(row: &LockRow, silent: &Series) -> Self {
        Self {
            row: LockRow {
                contentions: 0,
                waits: Histogram::default(),
                total_ns: 0,
                max_ns: 0,
                spin_ns: 0,
                block_ns: 0,
                run_queue_ns: 0,
                raced: 0,
                timed_out: 0,
                waiters: Vec::new(),
                holders: Vec::new(),
                ..row.clone()
            },
            waiters: HashMap::new(),
            holders: HashMap::new(),
            contentions: silent.clone(),
            total: silent.clone(),
        }
    }

    fn add(
        &mut self,
        part: LockRow,
        scale: &mut Scale<'_>,
        room: &mut Room,
        homeless: &mut Homeless,
    ) {
        let sum = &mut self.row;
        sum.contentions += scale.of(part.contentions);
        sum.waits.add_weighted(&part.waits, scale.by, scale.random);
        sum.total_ns += scale.of(part.total_ns);
        sum.max_ns = sum.max_ns.max(part.max_ns);
        sum.spin_ns += scale.of(part.spin_ns);
        sum.block_ns += scale.of(part.block_ns);
        sum.run_queue_ns += scale.of(part.run_queue_ns);
        sum.raced += scale.of(part.raced);
        sum.timed_out += scale.of(part.timed_out);
        sum.open = part.open;
        for mut waiter in part.waiters {
            let (count, total_ns) = (waiter.count, waiter.total_ns);
            scale.waiter(&mut waiter);
            let task = waiter.task.clone();
            let stacks = (waiter.kernel, waiter.user, waiter.waker);
            let key = (task, waiter.is_shared, stacks.0, stacks.1, stacks.2);
            match self.waiters.get_mut(&key) {
                None if room.waiters == 0 => {
                    homeless.waiters.0 += count;
                    homeless.waiters.1 += total_ns;
                }
                None => {
                    room.waiters -= 1;
                    self.waiters.insert(key, waiter);
                }
                Some(sum) => {
                    sum.count += waiter.count;
                    sum.total_ns += waiter.total_ns;
                    sum.run_queue_ns += waiter.run_queue_ns;
                    sum.max_ns = sum.max_ns.max(waiter.max_ns);
                }
            }
        }
        for mut holder in part.holders {
            let waits = holder.waits;
            scale.holder(&mut holder);
            let key = (holder.task.clone(), holder.kind, holder.stack);
            match self.holders.get_mut(&key) {
                None if room.holders == 0 => homeless.holders += waits,
                None => {
                    room.holders -= 1;
                    self.holders.insert(key, holder);
                }
                Some(sum) => sum.add(&holder),
            }
        }
    }

    /// Waits that are open at the end have ended in no window.
    fn finish(self, scale: &mut Scale<'_>) -> LockRow {
        let (contentions, total) = (
            self.contentions.estimate_events(scale.by),
            self.total.estimate(scale.by),
        );
        let mut whole = Self::new(&self.row, &Series::default());
        whole.add(
            LockRow {
                waiters: self.waiters.into_values().collect(),
                holders: self.holders.into_values().collect(),
                ..self.row
            },
            scale,
            // All of it had room before.
            &mut Room::default(),
            &mut Homeless::default(),
        );
        let mut row = whole.row;
        row.contentions += row.open;
        row.waits.add_exact(row.open, 0, 0);
        row.waiters = whole.waiters.into_values().collect();
        row.holders = whole.holders.into_values().collect();
        row.sort();
        row.margins = Some(Margins {
            contentions: contentions.margin,
            total_ns: total.margin,
        });
        row
    }
}

/// Multiplies what was seen by what it stands for.
struct Scale<'a> {
    by: f64,
    random: &'a mut u64,
}

impl<'a> Scale<'a> {
    fn new(by: f64, random: &'a mut u64) -> Self {
        *random |= 1;
        Self { by, random }
    }

    fn of(&mut self, seen: u64) -> u64 {
        round_fairly(seen as f64 * self.by, self.random)
    }

    fn waiter(&mut self, waiter: &mut Waiter) {
        waiter.count = self.of(waiter.count);
        waiter.total_ns = self.of(waiter.total_ns);
        waiter.run_queue_ns = self.of(waiter.run_queue_ns);
    }

    fn holder(&mut self, holder: &mut Holder) {
        holder.waits = self.of(holder.waits);
        holder.caused_ns = self.of(holder.caused_ns);
        holder.on_cpu = self.of(holder.on_cpu);
        holder.runnable = self.of(holder.runnable);
        holder.blocked = self.of(holder.blocked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    fn window(start_ns: u64) -> Window {
        Window {
            start_ns,
            end_ns: start_ns + 10,
            stratum_ns: 100,
        }
    }

    fn other(total_ns: u64) -> LockRow {
        let mut other = row(total_ns);
        other.identity.address += 64;
        other
    }

    #[test]
    fn windows_stand_for_the_time_around_them() {
        let mut sums = Sums::default();
        for start_ns in [0, 120, 250] {
            sums.add(vec![row(6)], &window(start_ns));
        }
        // The last 20 ns lie in no stratum.
        let (rows, looked) = sums.take(320);
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.contentions, row.total_ns, row.waits.count()))
            .collect();
        assert_eq!(found, [(32, 192, 32)]);
        assert_eq!(looked, Some(30.0 / 320.0));
        let margins = rows[0].margins.expect("an estimate");
        // The same in every window: only what nobody looked at is not sure.
        assert!((margins.total_ns - 12.0).abs() < 1e-6, "{margins:?}");
    }

    #[test]
    fn a_lock_that_is_seen_late_was_silent_before() {
        let mut sums = Sums::default();
        sums.add(vec![row(6)], &window(0));
        sums.add(vec![row(6), other(8)], &window(100));
        sums.add(vec![row(6)], &window(200));
        let (rows, _) = sums.take(300);
        let late = rows
            .iter()
            .find(|row| row.total_ns == 80)
            .expect("the other");
        let margins = late.margins.expect("an estimate");
        assert!(margins.total_ns.is_finite() && margins.total_ns > 80.0);
        assert!(sums.take(1).0.is_empty(), "the interval is over");
    }

    #[test]
    fn waits_that_go_on_are_counted_once_and_at_the_end() {
        let mut sums = Sums::default();
        for start_ns in [0, 100, 200] {
            let mut open = row(10);
            (open.contentions, open.open, open.waits) = (0, 1, Histogram::default());
            sums.add(vec![open], &window(start_ns));
        }
        let (rows, _) = sums.take(300);
        assert_eq!((rows[0].contentions, rows[0].open), (1, 1));
        assert_eq!(rows[0].total_ns, 300);
    }
}
