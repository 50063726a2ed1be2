//! What the BPF side has gathered, as plain data.

use anyhow::{Context, Result};
use bpf::profile::ProfileSkel;
use bpf::profile::types::{profile_key, profile_totals, profile_value};
use budget::Estimate;
use budget::meter::{count_skipped, cpus_online};
use host::clock::Edges;
use host::task::comm_text;
use libbpf_rs::MapCore;
use libbpf_rs::skel::Skel;
use loader::counters::{Counters, Words};
use loader::maps;
use loader::section;
use profile::losses::Losses;
use profile::model::Task;
use profile::text::{WIDTH, cut, sentence};
use session::progress::State;
use session::quotas::UsedUp;
use stacks::StackTable;

use crate::profile::args::{Args, Rate};
use crate::profile::counters::Late;

/// Samples of one process (or thread) on one pair of stacks.
pub struct Row {
    /// The process, or the thread.
    pub task: Task,
    /// User stack's id in the table of stacks; 0: none.
    pub user: u64,
    /// Kernel stack's id; 0: none.
    pub kernel: u64,
    /// Number of samples.
    pub samples: u64,
    /// Sum of what they weigh.
    pub weight: u64,
}

impl Row {
    /// Place among the rows of a report: those of equal runs stand in the same order.
    pub(crate) fn place(&self) -> impl Ord + '_ {
        (&self.task, self.user, self.kernel)
    }
}

/// Events by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// All that fired.
    pub events: u64,
    /// Those of the idle tasks.
    pub idle: u64,
    /// Those of tasks that are no targets.
    pub others: u64,
    /// Those that were recorded.
    pub samples: u64,
}

impl Totals {
    /// Events of everybody but the idle tasks.
    pub fn busy(&self) -> u64 {
        self.events - self.idle
    }
}

/// Everything a run found.
pub struct Harvest {
    /// By task and stacks, once windows are added up.
    pub rows: Vec<Row>,
    /// Sums of all.
    pub totals: Totals,
    /// Seen and not counted.
    pub losses: Losses,
    /// Begin and end.
    pub window: Edges,
    /// Samples that a clock takes of CPUs as busy as these were; `None`: the event is no clock.
    pub expected: Option<u64>,
    /// Where not everything was looked at.
    pub estimates: Option<Estimates>,
    /// Groups of those asked for whose CPU quota was used up, once the report is made.
    pub quotas: Vec<UsedUp>,
}

/// How sure the totals are.
#[derive(Clone, Copy, Debug)]
pub struct Estimates {
    /// All samples.
    pub samples: Estimate,
    /// Of the values, with `--weight`.
    pub weight: Estimate,
    /// Share of the time that was looked at.
    pub looked: f64,
}

impl Estimates {
    /// The line below a report. `what`: the values, in the plural; `is_weighed`: they are weights.
    pub(crate) fn describe(&self, what: &str, is_weighed: bool) -> String {
        let (all, of) = match is_weighed {
            true => ("", self.weight),
            false => ("all ", self.samples),
        };
        let looked = 100.0 * self.looked;
        let parts = [
            format!("estimated, tracing {looked:.1}% of the time:"),
            format!("{all}{} {}", cut(what, WIDTH / 2), of.describe()),
        ];
        sentence(&parts, "", WIDTH).join("\n")
    }
}

/// Samples that may be missing at the window's edges, per CPU.
const EDGE_SAMPLES: u64 = 2;
/// The kernel's account of idle time is itself made of ticks: one sample in this many may be missing because of it.
const TOLERANCE: u64 = 20;

/// For a look at the CPUs' idle time.
const MOST_LATE_NS: u64 = 50_000_000;

/// Idle time of all CPUs in a window, by the kernel's account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    /// ns
    pub(crate) ns: u64,
    /// Time from the window's end to the look at it, ns.
    pub(crate) late_ns: u64,
}

/// Counters of what was not counted.
const LOSSES: [Words; 3] = [
    ("losses.rows_full", "samples: table full"),
    ("losses.busy", "samples: all buffers in use"),
    ("losses.bad_weight", "events with a weight of 0 or less"),
];

impl Harvest {
    /// Ticks that a clock owes, if everything was looked at.
    pub(crate) fn expect_ticks(&mut self, args: &Args, idle: Idle, late_cpus: &Late) {
        // Nobody knows how long a CPU was there that came later, nor how much of the idle time of a late look was the window's.
        if !args.event.is_clock() || !late_cpus.is_empty() || idle.late_ns >= MOST_LATE_NS {
            return;
        }
        let period_ns = match args.rate() {
            Rate::Every(period_ns) => period_ns,
            Rate::Hertz(hertz) => 1_000_000_000 / hertz,
        };
        let time_ns = self.window.ns() * cpus(args);
        self.expected = Some(time_ns.saturating_sub(idle.ns) / period_ns);
    }

    pub(crate) fn count_losses(
        &mut self,
        args: &Args,
        skel: &ProfileSkel<'_>,
        stacks: &StackTable,
        late_cpus: &Late,
    ) -> Result<()> {
        let expected = self.expected.unwrap_or(0);
        let slack = EDGE_SAMPLES * cpus(args) + expected / TOLERANCE;
        let missing = expected.saturating_sub(self.totals.busy() + slack);
        let losses = &mut self.losses;
        losses.count("throttled", "samples the kernel did not take", missing);
        count_skipped(skel.object(), losses);
        late_cpus.count(losses);
        Counters::new(skel.object(), &LOSSES, &["moments_full"])?.count(losses)?;
        stacks.count_losses(losses);
        Ok(())
    }
}

/// CPUs that are looked at.
fn cpus(args: &Args) -> u64 {
    if args.cpu.is_some() { 1 } else { cpus_online() }
}

/// What the progress line shows.
pub(crate) fn progress(skel: &ProfileSkel<'_>, stacks: &StackTable) -> Result<State> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    let lost = bss.losses.rows_full
        + bss.losses.busy
        + bss.stack_losses.ring_full
        + bss.stack_losses.table_full;
    Ok(State {
        events: totals(skel)?.events,
        stacks: Some(stacks.len()),
        lost,
        ..State::default()
    })
}

/// All rows, since the start of the run or since they were cleared.
pub(crate) fn rows(skel: &ProfileSkel<'_>) -> Result<Vec<Row>> {
    let entries = maps::entries::<profile_key, profile_value>(&skel.maps.counts)?;
    let rows = entries.iter().map(|(key, value)| Row {
        task: Task::new(comm_text(&key.comm), key.tgid, key.tid),
        user: key.user_stack,
        kernel: key.kernel_stack,
        samples: value.samples,
        weight: value.weight,
    });
    Ok(rows.collect())
}

/// Nobody writes any more.
pub(crate) fn clear_rows(skel: &ProfileSkel<'_>) -> Result<()> {
    let counts = &skel.maps.counts;
    for key in counts.keys().collect::<Vec<_>>() {
        counts.delete(&key).context("clear samples")?;
    }
    Ok(())
}

/// Since the start of the run.
pub(crate) fn totals(skel: &ProfileSkel<'_>) -> Result<Totals> {
    let per_cpu: Vec<profile_totals> = maps::per_cpu(&skel.maps.totals, 0)?;
    Ok(per_cpu.iter().fold(Totals::default(), |sum, cpu| Totals {
        events: sum.events + cpu.events,
        idle: sum.idle + cpu.idle,
        others: sum.others + cpu.others,
        samples: sum.samples + cpu.samples,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrow::{MANY, PATHS, assert_narrow};

    #[test]
    fn estimates_fit_a_terminal() {
        let estimate = Estimate {
            margin: MANY as f64,
            ..Estimate::default()
        };
        let estimates = Estimates {
            samples: estimate,
            weight: estimate,
            looked: 0.123,
        };
        assert_narrow(&estimates.describe("samples", false));
        assert_narrow(&estimates.describe(PATHS[0], true));
    }
}
