//! A collection in windows: what each of them showed, added up by what it stands for. Without a budget there is one, which stands
//! for itself.

use anyhow::Result;
use bpf::profile::ProfileSkel;
use budget::{Bounded, Sampler, Series, Weighted, Window, Windowed, open_edges, shut_edges};
use host::clock::Edges;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use loader::section;
use profile::losses::Losses;
use profile::model::Task;
use stacks::StackTable;

use crate::profile::args::Args;
use crate::profile::attach::Attached;
use crate::profile::busy;
use crate::profile::event::Event;
use crate::profile::harvest::{self, Estimates, Harvest, Idle, Row, Totals};
use crate::profile::moments::Moments;
use crate::profile::traps;

/// Most rows of all windows together; one has 65,536 at most.
const MOST_ROWS: usize = 1 << 18;

/// The windows so far.
pub(crate) struct Sums {
    /// Samples and weight, by task, user stack and kernel stack.
    rows: Bounded<(Task, u64, u64), (Weighted, Weighted)>,
    /// Samples that found no room there.
    rows_full: Weighted,
    totals: [Weighted; 4],
    samples: Series,
    weight: Series,
    /// Totals in the map at the last edge.
    before: Totals,
    /// Idle time of all CPUs when the window opened, ns.
    idle_before_ns: u64,
    /// The same while it was open; and its end was looked at so long after it, ns.
    idle: Idle,
}

/// The tool at the edge of a window.
pub(crate) struct Sampled<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut ProfileSkel<'static>,
    pub(crate) moments: &'a mut Moments,
    pub(crate) attached: &'a mut Attached,
    /// Time that each run of a program on a function costs beside it, ns.
    pub(crate) trap_ns: u64,
    pub(crate) sums: &'a mut Sums,
}

/// Before the first window: time that a program on a function costs beside its run, ns.
pub(crate) fn measure_trap(
    args: &Args,
    skel: &mut ProfileSkel<'static>,
    attached: &mut Attached,
) -> Result<u64> {
    match &args.event {
        Event::Uprobe { .. } => {
            let (method, trap_ns) = traps::measure(skel)?;
            // The first window attaches it anew.
            attached.change(method);
            attached.pause()?;
            Ok(trap_ns)
        }
        Event::Counter { .. } | Event::Tracepoint { .. } => Ok(0),
    }
}

impl Sampled<'_> {
    /// A run within a budget looks at times only.
    fn is_limited(&self) -> bool {
        self.args.budget.max_overhead.is_some()
    }

    /// Everything, once the collection has ended.
    pub(crate) fn harvest(
        self,
        sampler: &Sampler<'_>,
        end_ns: u64,
        stacks: &StackTable,
    ) -> Result<Harvest> {
        let start_ns = sampler.began_ns();
        let late_cpus = self.attached.late_cpus();
        let sums = std::mem::take(self.sums);
        let idle = sums.idle;
        let window = Edges { start_ns, end_ns };
        let mut harvest = sums.harvest(sampler.scale(end_ns), window);
        if sampler.is_exact() {
            harvest.estimates = None;
        }
        if let Some(estimates) = &mut harvest.estimates {
            estimates.looked = sampler.share(end_ns);
        }
        if self.args.budget.max_overhead.is_none() {
            harvest.expect_ticks(self.args, idle, &late_cpus);
        }
        harvest.count_losses(self.args, self.skel, stacks, &late_cpus)?;
        Ok(harvest)
    }
}

impl Windowed for Sampled<'_> {
    fn object(&self) -> &Object {
        self.skel.object()
    }

    fn trap_ns(&self) -> u64 {
        self.trap_ns
    }

    fn is_ready(&self) -> bool {
        self.attached.has_paused()
    }

    fn open(&mut self, length_ns: Option<u64>, _first: bool) -> Result<u64> {
        if self.is_limited() {
            self.attached.resume(self.args, self.skel)?;
        }
        self.sums.idle_before_ns = busy::idle_ns(self.args.cpu);
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let now = shut_edges(&mut bss.window_end_ns);
        let late_ns = now - bss.window_end_ns;
        let idle_ns = busy::idle_ns(self.args.cpu);
        self.sums.idle = Idle {
            ns: idle_ns.saturating_sub(self.sums.idle_before_ns),
            late_ns,
        };
        if self.is_limited() {
            self.attached.pause()?;
        }
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let rows = harvest::rows(self.skel)?;
        harvest::clear_rows(self.skel)?;
        self.moments.absorb_weighted(window.weight().number());
        self.sums.add(rows, harvest::totals(self.skel)?, window);
        Ok(())
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            rows: Bounded::new(MOST_ROWS),
            rows_full: Weighted::default(),
            totals: [Weighted::default(); 4],
            samples: Series::default(),
            weight: Series::default(),
            before: Totals::default(),
            idle_before_ns: 0,
            idle: Idle::default(),
        }
    }
}

impl Sums {
    /// `totals` are those in the map, since the start of the run.
    fn add(&mut self, rows: Vec<Row>, totals: Totals, window: &Window) {
        let weight = window.weight();
        let seen = figures(&totals).into_iter().zip(figures(&self.before));
        for (sum, (now, before)) in self.totals.iter_mut().zip(seen) {
            sum.add(now - before, weight);
        }
        self.before = totals;
        let (mut samples, mut weights) = (0.0, 0.0);
        for row in rows {
            samples += row.samples as f64;
            weights += row.weight as f64;
            match self
                .rows
                .entry((row.task, row.user, row.kernel), Default::default)
            {
                Some(sum) => {
                    sum.0.add(row.samples, weight);
                    sum.1.add(row.weight, weight);
                }
                None => self.rows_full.add(row.samples, weight),
            }
        }
        let (open_ns, stratum_ns) = (window.open_ns(), window.stratum_ns);
        self.samples.push(samples, open_ns, stratum_ns);
        self.weight.push(weights, open_ns, stratum_ns);
    }

    fn harvest(mut self, scale: f64, window: Edges) -> Harvest {
        let mut random = 1;
        let mut whole = |sum: Weighted| sum.whole_fairly(scale, &mut random);
        let rows = self.rows.drain().map(|((task, user, kernel), sum)| Row {
            task,
            user,
            kernel,
            samples: whole(sum.0),
            weight: whole(sum.1),
        });
        let rows = rows
            .filter(|row| row.samples > 0 || row.weight > 0)
            .collect();
        let [events, idle, others, samples] = self.totals.map(|total| total.whole(scale));
        let mut losses = Losses::default();
        losses.count(
            "windows_full",
            "samples: table of all windows full",
            self.rows_full.whole(scale),
        );
        Harvest {
            rows,
            totals: Totals {
                events,
                idle: idle.min(events),
                others,
                samples,
            },
            losses,
            window,
            // A clock's ticks are held to the kernel's account only where all of them were taken.
            expected: None,
            estimates: Some(Estimates {
                samples: self.samples.estimate_events(scale),
                weight: self.weight.estimate(scale),
                looked: 1.0,
            }),
        }
    }
}

fn figures(totals: &Totals) -> [u64; 4] {
    [totals.events, totals.idle, totals.others, totals.samples]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(number: u64) -> Window {
        Window {
            start_ns: number * 100,
            end_ns: number * 100 + 2,
            stratum_ns: 100,
        }
    }

    #[test]
    fn windows_without_samples_do_not_make_sure_of_it() {
        let mut sums = Sums::default();
        for number in 0..20 {
            sums.add(Vec::new(), Totals::default(), &window(number));
        }
        let harvest = sums.harvest(1.0, Edges::default());
        let estimates = harvest.estimates.expect("not all was looked at");
        let line = |is_weighed| estimates.describe("cpu-clock", is_weighed);
        assert!(
            line(false).ends_with("all cpu-clock at most 149"),
            "{}",
            line(false)
        );
        assert!(
            line(true).ends_with("\u{b1}? (nothing seen)"),
            "{}",
            line(true)
        );
    }
}
