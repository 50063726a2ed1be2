//! usekit-bench: what the tools cost, beside libbpf-tools, bpftrace and perf, on the same load in the same run.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use cases::Case;
use measure::{Plan, Sample};

mod answer;
mod cases;
mod disk;
mod fdinfo;
mod load;
mod locks;
mod machine;
mod measure;
mod python;
mod running;
mod scripts;
mod stats;
mod summary;
mod table;
mod tool;
mod unwind;
mod workers;

/// Measure our tools and others in turns under `perf bench sched pipe`, fio or a
/// contended mutex.
#[derive(Parser)]
#[command(version, max_term_width = 80)]
struct Args {
    /// How often each tool of a pair is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Length of a measuring window; a measurement has three
    #[arg(long, default_value_t = 2.0, value_parser = window)]
    seconds: f64,

    /// Measure this case only (repeatable): offcputime, offcputime-fp,
    /// offcputime-p, unwinding, runqlat, runqlat-p, runqlat-P, biolatency,
    /// biolatency-D, profile, lockstat, lockstat-fp, why, python
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// CPU that the load is pinned to [default: the last one]
    #[arg(long)]
    cpu: Option<usize>,

    /// Where our tools are
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    ours_dir: PathBuf,

    /// Where libbpf-tools are
    #[arg(long, value_name = "DIR", default_value = "/usr/sbin")]
    theirs_dir: PathBuf,

    /// py-spy, for Python
    #[arg(long, value_name = "FILE", default_value = "py-spy")]
    py_spy: PathBuf,

    /// Where the table goes
    #[arg(long, value_name = "FILE", default_value = "bench/results.md")]
    output: PathBuf,

    /// Where the table of all makers goes, when everything is measured
    #[arg(long, value_name = "FILE", default_value = "docs/numbers.md")]
    numbers: PathBuf,

    /// Measure ours against ourselves, write no file: every ratio has to be near 1
    #[arg(long)]
    self_check: bool,
}

fn window(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.1 to 600 seconds are possible".to_owned()),
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    // SAFETY: takes nothing and cannot fail.
    ensure!(unsafe { libc::geteuid() } == 0, "this needs root");
    let cases = match args.only.as_slice() {
        [only] if only == UNWINDING || only == PYTHON => Vec::new(),
        only => cases::cases(only)?,
    };
    if args.measures(PYTHON) {
        python::has(&args.py_spy)?;
    }
    let results = cases
        .iter()
        .map(|case| Ok((*case, rounds(case, &args)?)))
        .collect::<Result<Vec<_>>>()?;

    let tables: String = results
        .iter()
        .map(|(case, rounds)| table::of_case(case, rounds))
        .collect();
    let mut more = String::new();
    if args.measures(UNWINDING) {
        more += &unwind::table(&args.plan(), args.rounds)?;
    }
    if args.measures(PYTHON) {
        more += &python::tables(&args.plan(), &args.py_spy, args.rounds)?;
    }
    let summary = summary::table(&results);
    let head = machine::header(&args.conditions());
    let text = format!("{head}{summary}\n{tables}{more}");
    io::stdout().write_all(text.as_bytes())?;
    if !args.self_check {
        fs::write(&args.output, text)
            .with_context(|| format!("write {}", args.output.display()))?;
        if args.only.is_empty() {
            summary::put_into(&args.numbers, &summary)?;
        }
    }
    Ok(())
}

/// One sample of each contender per round; who is measured first takes turns.
fn rounds(case: &Case, args: &Args) -> Result<Vec<Vec<Sample>>> {
    let plan = args.plan();
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        writeln!(
            io::stderr(),
            "{}: round {} of {}",
            case.name,
            round + 1,
            args.rounds
        )?;
        let count = case.contenders.len();
        let mut samples: Vec<_> = (0..count)
            .map(|turn| {
                let side = (turn + round as usize) % count;
                let contender = &case.contenders[if args.self_check { 0 } else { side }];
                let sample = measure::run(case, contender, &plan).with_context(|| {
                    format!("measure {}, {}", case.name, contender.maker.name())
                })?;
                Ok((side, sample))
            })
            .collect::<Result<_>>()?;
        samples.sort_by_key(|(side, _)| *side);
        rounds.push(samples.into_iter().map(|(_, sample)| sample).collect());
    }
    Ok(rounds)
}

/// The comparison of ways to walk user stacks, as a case.
const UNWINDING: &str = "unwinding";
/// The cost of Python's functions, as a case.
const PYTHON: &str = "python";

impl Args {
    /// True: `table`, which is no comparison of makers, is wanted.
    fn measures(&self, table: &str) -> bool {
        !self.self_check && (self.only.is_empty() || self.only == [table])
    }

    fn plan(&self) -> Plan {
        Plan {
            cpu: self.cpu.unwrap_or_else(machine::last_cpu),
            window: Duration::from_secs_f64(self.seconds),
            ours_dir: self.ours_dir.clone(),
            theirs_dir: self.theirs_dir.clone(),
        }
    }

    fn conditions(&self) -> machine::Conditions {
        let plan = self.plan();
        machine::Conditions {
            rounds: self.rounds,
            seconds: self.seconds,
            cpu: plan.cpu,
            ours: plan.ours_dir.join("offcputime"),
            self_check: self.self_check,
        }
    }
}
