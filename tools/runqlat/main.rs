//! runqlat: how long runnable threads wait for a CPU, and behind whom.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use bpf::runqlat::{RunqlatSkel, RunqlatSkelBuilder};
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::closing::Closing;
use trace::collect::{Until, collect, finish_command};
use trace::command::{Corked, Running};
use trace::cost::Meter;
use trace::histogram::hdr::HdrLog;
use trace::iterate::{self, Reseeding};
use trace::loader::{self, section};
use trace::probe::Kernel;
use trace::progress::Progress;
use trace::run::{self, Outcome};
use trace::signals::Signals;
use trace::targets::Settings;
use trace::window::{Ticker, monotonic_ns};

use args::{Args, Group};
use harvest::Interval;
use slow::SlowWaits;

mod args;
mod harvest;
mod report;
mod slow;

fn main() -> ExitCode {
    run::main("runqlat", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return Ok(run::print_completions(shell, Args::command()));
    }
    let mut targets = args.targets.resolve()?;
    run::check_privileges()?;
    let mut hdr = args
        .hdr
        .as_deref()
        .map(|path| HdrLog::create(path, SystemTime::now()))
        .transpose()?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let mut skel = load(args, &targets)?;
    let slow_waits = SlowWaits::open(&skel.maps.slow_waits)?;

    let start_ns = open_window(args, &mut skel, &targets)?;
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let written = report_intervals(
        args,
        &mut skel,
        &slow_waits,
        (&signals, command.as_mut()),
        hdr.as_mut(),
        &mut end_ns,
    );
    run::unless_closed(written, ())?;
    let outcome = close(args, &skel, &meter, end_ns - start_ns)?;
    match command {
        Some(command) => Ok(Outcome::Command(finish_command(command, &signals)?)),
        None => Ok(outcome),
    }
}

/// Prints one report per interval, or one in all. `end_ns` is when the window opened, and becomes the end of the last
/// interval that was taken, written or not.
fn report_intervals(
    args: &Args,
    skel: &mut RunqlatSkel<'_>,
    slow_waits: &SlowWaits,
    (signals, mut command): (&Signals, Option<&mut Running>),
    mut hdr: Option<&mut HdrLog>,
    end_ns: &mut u64,
) -> Result<()> {
    let start_ns = *end_ns;
    let mut ticker = args
        .every
        .interval
        .map(|interval| Ticker::new(start_ns, interval));
    let mut reseeding = Reseeding::default();
    for reports in 1.. {
        let mut until = Until::new(signals, command.as_deref_mut(), *end_ns, None);
        until.deadline_ns = ticker.as_ref().map(Ticker::next_ns);
        let progress = Progress::new(args.every.interval, args.common.quiet);
        collect(&mut until, &[slow_waits.fd()], &progress, || {
            slow_waits.print(args, &mut io::stdout().lock())?;
            let moves = section(skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
            reseeding.follow(moves, skel.links.seed_members.as_ref())?;
            harvest::progress(skel)
        })?;
        let over = until.is_interrupted();
        let interval = Interval::take(args, skel, *end_ns)?;
        *end_ns = interval.end_ns;
        let stdout = &mut io::stdout().lock();
        report::write(args, &interval, hdr.as_deref_mut(), start_ns, stdout)?;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if args.every.count.is_some_and(|count| reports >= count) {
            break;
        }
    }
    Ok(io::stdout().flush()?)
}

fn load(args: &Args, targets: &Settings) -> Result<RunqlatSkel<'static>> {
    let programs = args.programs(&Kernel::probe()?, targets);
    if args.common.verbose {
        eprintln!("runqlat: {}", loader::describe(&programs));
    }
    loader::load(RunqlatSkelBuilder::default(), &programs, |open| {
        args.to_bpf(
            targets,
            section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
        );
        if args.group() == Group::Machine {
            // Preallocated, and not used.
            open.maps.groups.set_max_entries(1)?;
            open.maps.buckets.set_max_entries(1)?;
        }
        Ok(())
    })
}

/// Finds the targets, then lets time count.
fn open_window(args: &Args, skel: &mut RunqlatSkel<'_>, targets: &Settings) -> Result<u64> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    iterate::run(skel.links.seed_members.as_ref())?;
    let start_ns = monotonic_ns();
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
    if !args.common.quiet {
        eprintln!("runqlat: tracing run queue latency; Ctrl-C ends");
    }
    Ok(start_ns)
}

fn close(args: &Args, skel: &RunqlatSkel<'_>, meter: &Meter, window_ns: u64) -> Result<Outcome> {
    let losses = harvest::losses(skel)?;
    let events = harvest::progress(skel)?.events;
    let cost = meter.read(skel.object());
    let closing = Closing {
        tool: "runqlat",
        window: Duration::from_nanos(window_ns),
        events: (events, "switches and wakeups"),
        stacks: None,
        losses: &losses,
        losses_of_ns: 0,
        cost: &cost,
    };
    closing.print(args.common.quiet);
    Ok(closing.outcome(args.common.strict))
}
