//! A collection in windows: what each of them showed, added up by what it stands for. Without a budget there is one, which stands
//! for itself.

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::left_out_sums;
use budget::{
    Bounded, LeftOut, Sampler, Series, Weighted, Window, Windowed, open_edges, shut_edges,
};
use host::clock::Edges;
use host::waits::Wait;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use loader::iterate;
use loader::maps;
use loader::section;
use profile::losses::Losses;
use profile::model::Task;
use stacks::StackTable;

use crate::offcputime::args::Args;
use crate::offcputime::harvest::{self, Accounting, Estimates, Harvest, KnownStacks, Row};
use crate::offcputime::losses::Lost;

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
type Key = (Task, Wait, u64, u64, u64);

/// Sums of one row: ns, ns, waits.
#[derive(Default)]
struct Sum {
    blocked: Weighted,
    runqueue: Weighted,
    count: Weighted,
    /// True in the latest window.
    is_open: bool,
}

/// Most rows of all windows together; one has 65,536 at most.
const MOST_ROWS: usize = 1 << 18;

/// The windows so far.
pub(crate) struct Sums {
    /// The closing iterator's records of the window that was shut last.
    closing: Vec<u8>,
    known: KnownStacks,
    rows: Bounded<Key, Sum>,
    /// Waits that found no room there, and their time, ns.
    rows_full: (Weighted, Weighted),
    accounting: [Weighted; FIGURES],
    threads: u64,
    open: u64,
    oncpu: Series,
    runqueue: Series,
    blocked: Series,
    /// Totals in the maps at the last edge.
    before: Accounting,
}

/// The tool at the edge of a window.
pub(crate) struct Sampled<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut OffcputimeSkel<'static>,
    pub(crate) stacks: &'a mut StackTable,
    pub(crate) sums: &'a mut Sums,
}

impl Sampled<'_> {
    /// A run within a budget may do no work that can be done after it.
    fn is_limited(&self) -> bool {
        self.args.budget.max_overhead.is_some()
    }

    /// Everything, once the collection has ended.
    pub(crate) fn harvest(self, sampler: &Sampler<'_>, end_ns: u64) -> Result<Harvest> {
        self.stacks.absorb();
        let scale = sampler.scale(end_ns);
        let start_ns = sampler.began_ns();
        let sums = std::mem::take(self.sums);
        let mut harvest = sums.harvest(scale, Edges { start_ns, end_ns });
        if sampler.is_exact() {
            harvest.estimates = None;
        }
        harvest.count_losses(self.skel, self.stacks)?;
        Ok(harvest)
    }
}

impl Windowed for Sampled<'_> {
    fn object(&self) -> &Object {
        self.skel.object()
    }

    fn leave_out(&mut self, below_ns: u64) -> Result<bool> {
        let wants_stacks = !self.args.stacks.kernel_stacks;
        let walks_on_exit = section(self.skel.maps.rodata_data, ".rodata")?
            .config
            .walk_on_exit
            != 0;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        // The length of a wait is not known yet if the stack is walked before the thread leaves its CPU.
        let can = wants_stacks && walks_on_exit && bss.walk_on_leaving == 0;
        if can {
            bss.stacks_from_ns = below_ns;
        }
        Ok(can)
    }

    fn left_out(&self) -> Result<LeftOut> {
        let per_cpu: Vec<left_out_sums> = maps::per_cpu(&self.skel.maps.left_out, 0)?;
        let none = LeftOut::default();
        Ok(per_cpu.iter().fold(none, |sum, cpu| LeftOut {
            waits: sum.waits + cpu.waits,
            ns: sum.ns + cpu.ns,
            of_ns: sum.of_ns + cpu.of_ns,
        }))
    }

    fn open(&mut self, length_ns: Option<u64>, first: bool) -> Result<u64> {
        if self.is_limited() {
            let waiting = iterate::run(self.skel.links.open_members.as_ref())?;
            harvest::describe_waiting(self.args, &waiting, self.stacks, &mut self.sums.known)?;
        }
        let takes_late = length_ns.is_some() && !self.is_limited();
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.takes_late = takes_late.into();
        bss.walk_on_leaving = (!first).into();
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let now = shut_edges(&mut bss.window_end_ns);
        if !self.is_limited() {
            self.stacks.absorb();
            section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.takes_late = 0;
        }
        // Still attached: what happens to a target meanwhile tells what it did in the window.
        self.sums.closing = iterate::run(self.skel.links.close_members.as_ref())?;
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let edges = (window.start_ns, window.end_ns);
        let closing = std::mem::take(&mut self.sums.closing);
        let known = &mut self.sums.known;
        let closing = (&closing[..], edges);
        let part = Harvest::gather(self.args, self.skel, self.stacks, known, closing)?;
        let totals = harvest::totals(self.skel)?;
        self.sums.add(&part, totals, window);
        Ok(())
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            closing: Vec::new(),
            known: KnownStacks::new(),
            rows: Bounded::new(MOST_ROWS),
            rows_full: Default::default(),
            accounting: [Weighted::default(); FIGURES],
            threads: 0,
            open: 0,
            oncpu: Series::default(),
            runqueue: Series::default(),
            blocked: Series::default(),
            before: Accounting::default(),
        }
    }
}

impl Sums {
    /// `totals` are those in the maps, since the start of the run.
    fn add(&mut self, part: &Harvest, totals: Accounting, window: &Window) {
        let weight = window.weight();
        let now = figures(&part.accounting);
        let before = figures(&self.before);
        let seen: Vec<u64> = now.iter().zip(before).map(|(now, old)| now - old).collect();
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
        for sum in self.rows.values_mut() {
            sum.is_open = false;
        }
        for row in &part.rows {
            let key = (row.task.clone(), row.wait, row.user, row.kernel, row.waker);
            let Some(sum) = self.rows.entry(key, Sum::default) else {
                self.rows_full.0.add(row.count, weight);
                self.rows_full
                    .1
                    .add(row.blocked_ns + row.runqueue_ns, weight);
                continue;
            };
            sum.blocked.add(row.blocked_ns, weight);
            sum.runqueue.add(row.runqueue_ns, weight);
            if row.is_open {
                sum.is_open = true;
            } else {
                sum.count.add(row.count, weight);
            }
        }
    }

    fn harvest(mut self, scale: f64, window: Edges) -> Harvest {
        let whole = |sum: Weighted| sum.whole(scale);
        let mut losses = Losses::default();
        let (count, time_ns) = self.rows_full;
        let what = "waits: table of all windows full";
        losses.time("windows_full", what, whole(count), whole(time_ns));
        let rows = self.rows.drain().map(|(key, sum)| {
            let (task, wait, user, kernel, waker) = key;
            Row {
                task,
                wait,
                user,
                kernel,
                waker,
                blocked_ns: whole(sum.blocked),
                runqueue_ns: whole(sum.runqueue),
                count: whole(sum.count) + u64::from(sum.is_open),
                is_open: sum.is_open,
            }
        });
        Harvest {
            rows: rows.collect(),
            accounting: accounting_of(self.accounting, self.threads, scale),
            losses,
            window,
            open: self.open,
            estimates: Some(Estimates {
                oncpu: self.oncpu.estimate(scale),
                runqueue: self.runqueue.estimate(scale),
                blocked: self.blocked.estimate(scale),
            }),
        }
    }
}

/// Undoes [`figures`], of sums over windows.
fn accounting_of(sums: [Weighted; FIGURES], threads: u64, scale: f64) -> Accounting {
    let whole = |sum: Weighted| sum.whole(scale);
    // However little of it: what was lost is said.
    let lost = |sum: Weighted| whole(sum).max(u64::from(sum != Weighted::default()));
    let [
        lifetime,
        oncpu,
        runqueue,
        blocked,
        unseen,
        filtered,
        filtered_ns,
        events,
        rows_full,
        rows_full_ns,
        unreported,
        unreported_ns,
        out_of_order,
    ] = sums;
    Accounting {
        threads,
        lifetime_ns: whole(lifetime),
        oncpu_ns: whole(oncpu),
        runqueue_ns: whole(runqueue),
        blocked_ns: whole(blocked),
        unseen_ns: whole(unseen),
        filtered: whole(filtered),
        filtered_ns: whole(filtered_ns),
        events: whole(events),
        lost: Lost {
            rows_full: lost(rows_full),
            rows_full_ns: lost(rows_full_ns),
            unreported: lost(unreported),
            unreported_ns: lost(unreported_ns),
            out_of_order: lost(out_of_order),
        },
    }
}

const FIGURES: usize = 13;

/// Figures that are added up over windows.
fn figures(accounting: &Accounting) -> [u64; FIGURES] {
    let lost = &accounting.lost;
    [
        accounting.lifetime_ns,
        accounting.oncpu_ns,
        accounting.runqueue_ns,
        accounting.blocked_ns,
        accounting.unseen_ns,
        accounting.filtered,
        accounting.filtered_ns,
        accounting.events,
        lost.rows_full,
        lost.rows_full_ns,
        lost.unreported,
        lost.unreported_ns,
        lost.out_of_order,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn part(accounting: Accounting) -> Harvest {
        Harvest {
            rows: Vec::new(),
            accounting,
            losses: Losses::default(),
            window: Edges::default(),
            open: 0,
            estimates: None,
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
            sums.add(&part(after(number)), after(number), &window);
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
