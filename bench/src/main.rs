//! usekit-bench: what the tools cost, beside libbpf-tools, on the same load in the same run.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use measure::{Plan, Sample};
use tools::{Case, Side};

mod disk;
mod fdinfo;
mod load;
mod machine;
mod measure;
mod stats;
mod table;
mod tools;
mod unwind;

/// Measure our tools and libbpf-tools in turns under `perf bench sched pipe` or fio.
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
    /// offcputime-p, unwinding, runqlat, runqlat-P, biolatency, biolatency-D
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// CPU that the load is pinned to [default: the last one]
    #[arg(long)]
    cpu: Option<usize>,

    /// Where our tools are
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    ours_dir: PathBuf,

    /// Where the tools to compare with are
    #[arg(long, value_name = "DIR", default_value = "/usr/sbin")]
    theirs_dir: PathBuf,

    /// Where the table goes
    #[arg(long, value_name = "FILE", default_value = "bench/results.md")]
    output: PathBuf,

    /// Measure libbpf-tools against themselves, write no file: every ratio has to be near 1
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
        [only] if only == UNWINDING => Vec::new(),
        only => tools::cases(only)?,
    };
    let results = cases
        .iter()
        .map(|case| Ok((case, rounds(case, &args)?)))
        .collect::<Result<Vec<_>>>()?;

    let tables: String = results
        .iter()
        .map(|(case, pairs)| table::of_case(case, pairs, args.self_check))
        .collect();
    let unwinding = if args.unwinding() {
        unwind::table(&args.plan(), args.rounds)?
    } else {
        String::new()
    };
    let text = format!("{}{tables}{unwinding}", machine::header(&args.conditions()));
    io::stdout().write_all(text.as_bytes())?;
    if !args.self_check {
        fs::write(&args.output, text)
            .with_context(|| format!("write {}", args.output.display()))?;
    }
    Ok(())
}

/// One pair per round, ours first; who is measured first alternates.
fn rounds(case: &Case, args: &Args) -> Result<Vec<[Sample; 2]>> {
    let plan = args.plan();
    let measure = |side| {
        measure::run(case, side, &plan)
            .with_context(|| format!("measure {}, {}", case.name, side.name()))
    };
    let mut pairs = Vec::new();
    for round in 0..args.rounds {
        writeln!(
            io::stderr(),
            "{}: round {} of {}",
            case.name,
            round + 1,
            args.rounds
        )?;
        pairs.push(if round % 2 == 0 {
            let ours = measure(Side::Ours)?;
            [ours, measure(Side::Theirs)?]
        } else {
            let theirs = measure(Side::Theirs)?;
            [measure(Side::Ours)?, theirs]
        });
    }
    Ok(pairs)
}

/// The comparison of ways to walk user stacks, as a case.
const UNWINDING: &str = "unwinding";

impl Args {
    fn unwinding(&self) -> bool {
        !self.self_check && (self.only.is_empty() || self.only == [UNWINDING])
    }

    fn plan(&self) -> Plan {
        Plan {
            cpu: self.cpu.unwrap_or_else(machine::last_cpu),
            window: Duration::from_secs_f64(self.seconds),
            ours_dir: if self.self_check {
                &self.theirs_dir
            } else {
                &self.ours_dir
            }
            .clone(),
            theirs_dir: self.theirs_dir.clone(),
            self_check: self.self_check,
        }
    }

    fn conditions(&self) -> machine::Conditions {
        let plan = self.plan();
        machine::Conditions {
            rounds: self.rounds,
            seconds: self.seconds,
            cpu: plan.cpu,
            ours: plan.ours_dir.join("offcputime"),
            self_check: plan.self_check,
        }
    }
}
