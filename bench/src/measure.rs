//! One measurement: a fresh load, alone, then with one tool beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::fdinfo::Holdings;
use crate::stats::{self, Program, Programs};
use crate::tools::{Case, Side, Tool};

/// Nothing more attaches once this has passed without a new program at work.
const QUIET: Duration = Duration::from_millis(500);

/// How long a tool may take to be at work.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program belongs to the steady work if it runs at least once in so many events of the load; the
/// rest is iterators and rare events.
const EVENTS_PER_RUN: u64 = 100;

/// Where the tools are, and how to measure.
pub(crate) struct Plan {
    pub(crate) cpu: usize,
    pub(crate) window: Duration,
    pub(crate) ours_dir: PathBuf,
    pub(crate) theirs_dir: PathBuf,
    /// "Ours" are libbpf-tools too.
    pub(crate) self_check: bool,
}

/// What one measurement found.
pub(crate) struct Sample {
    /// Events of the load per second, without and with the tool.
    pub(crate) rates: [f64; 2],
    /// What the tool's programs did in the window, and the machine's events meanwhile.
    pub(crate) programs: Vec<Program>,
    pub(crate) events: u64,
    /// From exec until all programs of the steady work were running.
    pub(crate) start_up: Duration,
    pub(crate) peak_memory: u64,
    pub(crate) map_memory: u64,
}

/// Measures one side of `case` once.
pub(crate) fn run(case: &Case, side: Side, plan: &Plan) -> Result<Sample> {
    let dir = if side == Side::Ours {
        &plan.ours_dir
    } else {
        &plan.theirs_dir
    };
    let args = case.arguments(side, plan.self_check);
    let load = case.load.start(plan.cpu)?;
    // The scheduler needs a moment until both tasks run warm.
    load.rate(Duration::from_millis(300))?;
    let without = load.rate(plan.window)?;

    let accounting = stats::Enabled::new()?;
    let loaded_before = stats::programs();
    let mut tool = Tool::start(&dir.join(case.tool()), args, load.pid())?;
    let first_runs = watch_start(&mut tool, &loaded_before)?;
    let ids = Holdings::of(tool.pid())?.programs();

    let (before, events) = (stats::programs(), load.events_around()?);
    thread::sleep(plan.window);
    let (after, events) = (stats::programs(), load.events_around()? - events);
    drop(accounting);

    let with = load.rate(plan.window)?;
    let map_memory = Holdings::of(tool.pid())?.map_bytes();
    tool.must_run()?;
    let start_up = start_up(&first_runs, &before, &after, &ids, events);
    let peak_memory = tool.finish()?;
    let programs = stats::between(&before, &after, &ids);
    ensure!(
        !programs.is_empty(),
        "none of its {} BPF programs ran under the load",
        ids.len()
    );
    Ok(Sample {
        rates: [without, with],
        programs,
        events,
        start_up,
        peak_memory,
        map_memory,
    })
}

/// When each new program was first seen to have run, as time since the tool's start.
fn watch_start(tool: &mut Tool, before: &Programs) -> Result<BTreeMap<u32, Duration>> {
    let mut first_runs = BTreeMap::new();
    let mut latest = Instant::now();
    while first_runs.is_empty() || latest.elapsed() < QUIET {
        for (id, program) in stats::programs() {
            let new = program.runs > 0 && !before.contains_key(&id);
            if new && !first_runs.contains_key(&id) {
                first_runs.insert(id, tool.started.elapsed());
                latest = Instant::now();
            }
        }
        tool.must_run()?;
        ensure!(
            tool.started.elapsed() < PATIENCE,
            "no BPF program at work after {} s",
            PATIENCE.as_secs()
        );
        thread::sleep(Duration::from_millis(1));
    }
    Ok(first_runs)
}

/// The last of the tool's steady programs to run for the first time.
fn start_up(
    first_runs: &BTreeMap<u32, Duration>,
    before: &Programs,
    after: &Programs,
    ids: &[u32],
    events: u64,
) -> Duration {
    let steady = |id: &&u32| {
        let done = stats::between(before, after, &[**id]);
        done.iter()
            .any(|program| program.runs >= events / EVENTS_PER_RUN)
    };
    let steady_ids = ids.iter().filter(steady);
    steady_ids
        .filter_map(|id| first_runs.get(id))
        .max()
        .copied()
        .unwrap_or_default()
}

impl Sample {
    /// Mean time of one run of one of its programs.
    pub(crate) fn ns_per_run(&self) -> f64 {
        let runs: u64 = self.programs.iter().map(|program| program.runs).sum();
        self.run_time_ns() / runs as f64
    }

    /// All its programs' time for one event of the machine.
    pub(crate) fn ns_per_event(&self) -> f64 {
        self.run_time_ns() / self.events as f64
    }

    /// What the load sees: how much longer one of its events takes.
    pub(crate) fn added_ns(&self) -> f64 {
        let [without, with] = self.rates;
        1e9 / with - 1e9 / without
    }

    /// Share of its speed that the load loses, in percent.
    pub(crate) fn slow_down(&self) -> f64 {
        let [without, with] = self.rates;
        100.0 * (1.0 - with / without)
    }

    fn run_time_ns(&self) -> f64 {
        self.programs
            .iter()
            .map(|program| program.run_time_ns as f64)
            .sum()
    }
}
