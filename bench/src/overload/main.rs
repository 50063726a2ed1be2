//! usekit-bench-overload: when tools begin and end on a machine that others keep busy, and what that machine does to
//! everybody else meanwhile, with each tool and without any.
//!
//! Loads run with the ordinary class in a session of their own, as from another terminal: groups of threads are what the
//! scheduler shares CPUs among (sched(7), autogroups). The program itself runs with real-time priority, so that what it
//! measures is not its own delay.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::process::Load;
use crate::run::{Run, Times};
use crate::watcher::Watcher;

mod examiner;
mod process;
mod run;
mod watcher;

/// Measure starts and ends of the tools beside loads that leave no CPU, and the longest time for which nobody else ran.
#[derive(Parser)]
#[command(version, max_term_width = 80)]
struct Args {
    /// Runs of each tool beside each load
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// stress-ng's stressor (repeatable), with its number of workers
    #[arg(long, value_name = "NAME=N", default_values = ["eventfd=2", "epoll=2", "switch=2", "mq=2", "mutex=2", "cpu=4"])]
    load: Vec<String>,

    /// A tool of ours (repeatable)
    #[arg(long, value_name = "NAME", default_values = run::OURS)]
    tool: Vec<String>,

    /// Run libbpf-tools' offcputime and runqlat, too
    #[arg(long)]
    theirs: bool,

    /// Print every run, not the largest of all
    #[arg(long)]
    each: bool,

    /// Fail if a tool of ours begins or ends later than that
    #[arg(long, value_name = "SECONDS")]
    most: Option<f64>,

    /// Directory of our tools
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    ours_dir: PathBuf,

    /// Directory of libbpf-tools
    #[arg(long, value_name = "DIR", default_value = "/usr/sbin")]
    theirs_dir: PathBuf,
}

fn main() -> Result<()> {
    process::be_first().context("needs root, or CAP_SYS_NICE, to be run beside such loads")?;
    let args = Args::parse();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "seconds, {} {} runs: begin: from exec to the first event; late: after the end of a window of {} s; others: \
         a sleeper of 50 ms that nobody woke for that long",
        if args.each { "each of" } else { "largest of" },
        args.runs,
        run::WINDOW.as_secs()
    )?;
    writeln!(
        out,
        "{:<12} {:<24} {:>7} {:>7} {:>7}",
        "load", "tool", "begin", "late", "others"
    )?;
    let mut too_late = 0;
    for load in &args.load {
        too_late += measure(&args, load, &mut out)?;
    }
    ensure!(
        too_late == 0,
        "{too_late} lines have a tool that was too late"
    );
    Ok(())
}

/// Every tool in turns beside one load, so that what the machine does to one it does to all. How many of ours were later than
/// `--most`.
fn measure(args: &Args, load: &str, out: &mut impl Write) -> Result<usize> {
    let mut runs = run::all(args);
    for _ in 0..args.runs {
        for run in &mut runs {
            let times = beside(load, run)?;
            if args.each {
                write_row(out, load, &run.name, times)?;
            }
            run.worst = run.worst.larger_of(times);
        }
    }
    if !args.each {
        for run in &runs {
            write_row(out, load, &run.name, run.worst)?;
        }
    }
    let most = args.most.map_or(Duration::MAX, Duration::from_secs_f64);
    let is_late = |run: &&Run| run.is_ours && run.worst.begin.max(run.worst.late) > Some(most);
    Ok(runs.iter().filter(is_late).count())
}

fn beside(load: &str, run: &Run) -> Result<Times> {
    let load = Load::start(load)?;
    let watcher = Watcher::start()?;
    let times = run.go()?;
    // A sleeper beside which nobody else runs does not even die.
    drop(load);
    Ok(Times {
        others: watcher.longest()?,
        ..times
    })
}

fn write_row(out: &mut impl Write, load: &str, tool: &str, times: Times) -> io::Result<()> {
    let seconds = |time: Option<Duration>| {
        time.map_or("-".into(), |time| format!("{:.2}", time.as_secs_f64()))
    };
    let (begin, late) = (seconds(times.begin), seconds(times.late));
    let others = seconds(Some(times.others));
    writeln!(
        out,
        "{load:<12} {tool:<24} {begin:>7} {late:>7} {others:>7}"
    )?;
    out.flush()
}
