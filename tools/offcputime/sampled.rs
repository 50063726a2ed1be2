//! A collection in windows: what each of them showed, added up by what it stands for. Without a budget there is one, which stands
//! for itself.

use budget::{Bounded, Series, Weighted, Window};
use host::clock::Edges;
use host::waits::Wait;
use profile::losses::Losses;
use profile::model::Task;

use crate::offcputime::details::{DetailSums, Lengths};
use crate::offcputime::harvest::{Accounting, Estimates, Harvest};
use crate::offcputime::open::KnownStacks;
use crate::offcputime::row::Row;

/// Programs that events run, and that are detached between windows.
pub(crate) const GATED: [&str; 6] = [
    "sched_switch",
    "sched_switch_pre_5_18",
    "sched_exit",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_waking",
];

/// Everything that tells rows apart.
type Key = (Task, Wait, u64, (u64, u64, u64));

/// Sums of one row: ns, ns, waits.
#[derive(Default)]
struct Sum {
    blocked: Weighted,
    runqueue: Weighted,
    count: Weighted,
    lengths: Lengths,
    /// True in the latest window.
    is_open: bool,
}

/// Most rows of all windows together; one has 65,536 at most.
const MOST_ROWS: usize = 1 << 18;

/// The windows so far.
pub(crate) struct Sums {
    /// The closing iterator's records of the window that was shut last.
    pub(crate) closing: Vec<u8>,
    /// Waits that were under way when it opened.
    pub(crate) known: KnownStacks,
    /// Waits that were open at its end.
    pub(crate) walked: KnownStacks,
    rows: Bounded<Key, Sum>,
    /// Waits that found no room there, and their time, ns.
    rows_full: (Weighted, Weighted),
    accounting: [Weighted; FIGURES],
    threads: u64,
    open: u64,
    oncpu: Series,
    runqueue: Series,
    blocked: Series,
    details: DetailSums,
    /// Totals in the maps at the last edge.
    before: Accounting,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            closing: Vec::new(),
            known: KnownStacks::new(),
            walked: KnownStacks::new(),
            rows: Bounded::new(MOST_ROWS),
            rows_full: Default::default(),
            accounting: [Weighted::default(); FIGURES],
            threads: 0,
            open: 0,
            oncpu: Series::default(),
            runqueue: Series::default(),
            blocked: Series::default(),
            details: DetailSums::default(),
            before: Accounting::default(),
        }
    }
}

impl Sums {
    /// `totals` are those in the maps, since the start of the run.
    pub(crate) fn add(&mut self, part: &Harvest, totals: Accounting, window: &Window) {
        let weight = window.weight();
        let mut accounting = part.accounting;
        let now = figures(&mut accounting).into_iter();
        let before = figures(&mut self.before);
        let seen: Vec<u64> = now.zip(before).map(|(now, old)| *now - *old).collect();
        for (sum, seen) in self.accounting.iter_mut().zip(&seen) {
            sum.add(*seen, weight);
        }
        let (open_ns, stratum_ns) = (window.open_ns(), window.stratum_ns);
        self.oncpu.push(seen[1] as f64, open_ns, stratum_ns);
        self.runqueue.push(seen[2] as f64, open_ns, stratum_ns);
        self.blocked.push(seen[3] as f64, open_ns, stratum_ns);
        let threads = part.accounting.threads - self.before.threads;
        self.threads = self.threads.max(threads);
        self.before = totals;
        self.open = part.open;
        self.details.add(&part.details, window);
        for sum in self.rows.values_mut() {
            sum.is_open = false;
        }
        for row in &part.rows {
            let stacks = (row.user, row.kernel, row.waker);
            let key = (row.task.clone(), row.wait, row.endpoint, stacks);
            let Some(sum) = self.rows.entry(key, Sum::default) else {
                self.rows_full.0.add(row.count, weight);
                self.rows_full
                    .1
                    .add(row.blocked_ns + row.runqueue_ns, weight);
                continue;
            };
            sum.blocked.add(row.blocked_ns, weight);
            sum.runqueue.add(row.runqueue_ns, weight);
            sum.lengths.merge(&row.lengths);
            if row.is_open {
                sum.is_open = true;
            } else {
                sum.count.add(row.count, weight);
            }
        }
    }

    pub(crate) fn harvest(mut self, scale: f64, window: Edges) -> Harvest {
        let whole = |sum: Weighted| sum.whole(scale);
        let mut losses = Losses::default();
        let (count, time_ns) = self.rows_full;
        let what = "waits: table of all windows full";
        losses.time("windows_full", what, whole(count), whole(time_ns));
        if self.details.homeless > 0 {
            let what = "threads: table of all windows' processes full";
            losses.count("details_full", what, self.details.homeless);
        }
        let rows = self.rows.drain().map(|(key, sum)| {
            let (task, wait, endpoint, (user, kernel, waker)) = key;
            Row {
                task,
                wait,
                endpoint,
                user,
                kernel,
                waker,
                blocked_ns: whole(sum.blocked),
                runqueue_ns: whole(sum.runqueue),
                count: whole(sum.count) + u64::from(sum.is_open),
                is_open: sum.is_open,
                open_number: None,
                lengths: sum.lengths,
            }
        });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable_by(|one, other| one.place().cmp(&other.place()));
        Harvest {
            rows,
            accounting: accounting_of(self.accounting, self.threads, scale),
            losses,
            window,
            open: self.open,
            quotas: Vec::new(),
            details: self.details.finish(scale),
            cycles: None,
            estimates: Some(Estimates {
                oncpu: self.oncpu.estimate(scale),
                runqueue: self.runqueue.estimate(scale),
                blocked: self.blocked.estimate(scale),
            }),
        }
    }
}

/// Sums over windows in the places of their figures.
fn accounting_of(sums: [Weighted; FIGURES], threads: u64, scale: f64) -> Accounting {
    let mut accounting = Accounting {
        threads,
        ..Accounting::default()
    };
    let figures = figures(&mut accounting).into_iter().enumerate();
    for ((at, figure), sum) in figures.zip(sums) {
        *figure = sum.whole(scale);
        // However little of it: what was lost is said.
        if at >= FIRST_LOST && sum != Weighted::default() {
            *figure = (*figure).max(1);
        }
    }
    accounting
}

const FIGURES: usize = 13;
/// Losses come last.
const FIRST_LOST: usize = 8;

/// Figures that are added up over windows.
fn figures(accounting: &mut Accounting) -> [&mut u64; FIGURES] {
    let lost = &mut accounting.lost;
    [
        &mut accounting.lifetime_ns,
        &mut accounting.oncpu_ns,
        &mut accounting.runqueue_ns,
        &mut accounting.blocked_ns,
        &mut accounting.unseen_ns,
        &mut accounting.filtered,
        &mut accounting.filtered_ns,
        &mut accounting.events,
        &mut lost.rows_full,
        &mut lost.rows_full_ns,
        &mut lost.unreported,
        &mut lost.unreported_ns,
        &mut lost.out_of_order,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offcputime::losses::Lost;
    use crate::offcputime::report::tests::harvest_of;

    /// Totals in the maps after so many windows, each with a fifth of the time lost.
    fn after(windows: u64) -> Accounting {
        Accounting {
            lifetime_ns: 1_000 * windows,
            unseen_ns: 40 * windows,
            events: 10 * windows,
            lost: Lost {
                rows_full: 5 * windows,
                rows_full_ns: 200 * windows,
                unreported: windows,
                unreported_ns: 100 * windows,
                out_of_order: 2 * windows,
            },
            ..Accounting::default()
        }
    }

    #[test]
    fn what_windows_lost_stands_for_their_strata_like_all_else() {
        let mut sums = Sums::default();
        for (number, stratum_ns) in [(1, 100), (2, 300)] {
            let window = Window {
                start_ns: number * 1_000,
                end_ns: number * 1_000 + 10,
                stratum_ns,
            };
            sums.add(&harvest_of(after(number)), after(number), &window);
        }
        let accounting = sums.harvest(1.0, Edges::default()).accounting;
        let lost = accounting.lost;
        assert_eq!(
            (accounting.lifetime_ns, accounting.unseen_ns),
            (40_000, 1_600)
        );
        assert_eq!((lost.rows_full, lost.rows_full_ns), (200, 8_000));
        assert_eq!((lost.unreported, lost.unreported_ns), (40, 4_000));
        assert_eq!(lost.out_of_order, 80);
    }
}
