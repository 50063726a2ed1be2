//! One measurement: a fresh load, alone, then with one tool beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::answer::Answer;
use crate::cases::{AND, Case, Contender, Maker};
use crate::fdinfo::Holdings;
use crate::stats::{self, Program, Programs};
use crate::tool::Tools;

/// Nothing more attaches once this has passed without a new program at work: `why` loads for a second between its first and its last.
const QUIET: Duration = Duration::from_secs(2);

/// How long a tool may take to be at work.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program belongs to the steady work if it runs at least once in so many events of the load; the
/// rest is iterators and rare events. A profiler's runs by the clock.
const EVENTS_PER_RUN: u64 = 100;

/// perf has no programs to watch; it is at work by then.
const PERF_STARTS: Duration = Duration::from_secs(1);

/// Where the tools are, and how to measure.
pub(crate) struct Plan {
    pub(crate) cpu: usize,
    pub(crate) window: Duration,
    pub(crate) ours_dir: PathBuf,
    pub(crate) theirs_dir: PathBuf,
}

/// What one measurement found.
pub(crate) struct Sample {
    /// Events of the load per second, without and with the tool.
    pub(crate) rates: [f64; 2],
    /// What the tool's programs did in the window, and the machine's events meanwhile.
    pub(crate) programs: Vec<Program>,
    pub(crate) events: u64,
    /// From exec until all programs of the steady work were running.
    pub(crate) start_up: Option<Duration>,
    pub(crate) peak_memory: u64,
    pub(crate) map_memory: u64,
    /// What the tool reported, as a share of what there was.
    pub(crate) right: Option<f64>,
}

/// When a program was first seen to have run.
struct FirstRun {
    /// Since the tool's start.
    at: Duration,
    /// What there had been by then of what the tool reports.
    truth: f64,
}

/// Measures one tool once.
pub(crate) fn run(case: &Case, contender: &Contender, plan: &Plan) -> Result<Sample> {
    let load = case.load.start(plan.cpu)?;
    // The scheduler needs a moment until both tasks run warm.
    load.rate(Duration::from_millis(300))?;
    let without = load.rate(plan.window)?;

    let file = tempfile::NamedTempFile::new_in("/dev/shm").context("make a file in memory")?;
    let substitute = |&arg: &&str| match arg {
        "PID" => load.pid().to_string(),
        "FILE" => file.path().display().to_string(),
        _ => arg.to_owned(),
    };
    let args: Vec<String> = contender.arguments.iter().map(substitute).collect();
    let commands = plan.commands(case, contender.maker, &args);
    let accounting = stats::Enabled::new()?;
    let loaded_before = stats::programs();
    let mut tool = Tools::start(&commands)?;
    let first_runs = if contender.maker.is_bpf() {
        watch_start(&mut tool, &loaded_before, || contender.answer.truth(&*load))?
    } else {
        thread::sleep(PERF_STARTS);
        BTreeMap::new()
    };
    let ids = Holdings::of(&tool.pids())?.programs();

    let (before, events) = (stats::programs(), load.events_around()?);
    thread::sleep(plan.window);
    let (after, events) = (stats::programs(), load.events_around()? - events);
    drop(accounting);

    let with = load.rate(plan.window)?;
    let map_memory = Holdings::of(&tool.pids())?.map_bytes();
    tool.must_run()?;
    let truth = contender.answer.truth(&*load)?;
    let end = tool.finish()?;
    let programs = stats::between(&before, &after, &ids);
    ensure!(
        !programs.is_empty() || !contender.maker.is_bpf(),
        "none of its {} BPF programs ran under the load",
        ids.len()
    );
    let least = match contender.answer {
        Answer::Samples => 1,
        _ => events / EVENTS_PER_RUN,
    };
    let begun = last_to_start(&first_runs, &before, &after, &ids, least);
    let reported = contender.answer.reported(&end.output);
    Ok(Sample {
        rates: [without, with],
        programs,
        events,
        start_up: begun.map(|first| first.at),
        peak_memory: end.peak_memory,
        map_memory,
        right: begun.and_then(|first| Some(reported? / (truth - first.truth))),
    })
}

/// When each new program was first seen to have run.
fn watch_start(
    tool: &mut Tools,
    before: &Programs,
    truth: impl Fn() -> Result<f64>,
) -> Result<BTreeMap<u32, FirstRun>> {
    let mut first_runs = BTreeMap::new();
    let mut latest = Instant::now();
    while first_runs.is_empty() || latest.elapsed() < QUIET {
        for (id, program) in stats::programs() {
            let new = program.runs > 0 && !before.contains_key(&id);
            if new && !first_runs.contains_key(&id) {
                let first = FirstRun {
                    at: tool.age(),
                    truth: truth()?,
                };
                first_runs.insert(id, first);
                latest = Instant::now();
            }
        }
        tool.must_run()?;
        ensure!(
            tool.age() < PATIENCE,
            "no BPF program at work after {} s",
            PATIENCE.as_secs()
        );
        thread::sleep(Duration::from_millis(1));
    }
    Ok(first_runs)
}

/// The last of the tool's steady programs to run for the first time.
fn last_to_start<'a>(
    first_runs: &'a BTreeMap<u32, FirstRun>,
    before: &Programs,
    after: &Programs,
    ids: &[u32],
    least_runs: u64,
) -> Option<&'a FirstRun> {
    let steady = |id: &&u32| {
        let done = stats::between(before, after, &[**id]);
        done.iter().any(|program| program.runs >= least_runs)
    };
    let steady_ids = ids.iter().filter(steady);
    steady_ids
        .filter_map(|id| first_runs.get(id))
        .max_by_key(|first| first.at)
}

impl Plan {
    /// Programs with their arguments.
    fn commands(&self, case: &Case, maker: Maker, args: &[String]) -> Vec<(PathBuf, Vec<String>)> {
        if maker != Maker::OursTogether {
            return vec![(self.program(case, maker), args.to_vec())];
        }
        let lines = args.split(|word| word == AND);
        let lines = lines.filter_map(|line| line.split_first());
        lines
            .map(|(name, args)| (self.ours_dir.join(name), args.to_vec()))
            .collect()
    }

    fn program(&self, case: &Case, maker: Maker) -> PathBuf {
        let name = case.program(maker);
        match maker {
            Maker::Ours | Maker::OursTogether => self.ours_dir.join(name),
            Maker::LibbpfTools => self.theirs_dir.join(name),
            Maker::Bpftrace | Maker::Perf => PathBuf::from(name),
        }
    }
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
