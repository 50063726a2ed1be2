//! runqlat: how long runnable threads wait for a CPU, and behind whom.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use bpf::runqlat::{RunqlatSkel, RunqlatSkelBuilder};
use clap::{CommandFactory, Parser};
use trace::arrivals::Arrivals;
use trace::budget::open_edges;
use trace::closing::{self, Closing};
use trace::collect::finish;
use trace::command::Corked;
use trace::cost::Cost;
use trace::intervals::report_each;
use trace::iterate::{self, Reseeding};
use trace::loader::{self, section};
use trace::meter::Meter;
use trace::outcome::Outcome;
use trace::privileges;
use trace::probe::{self, Kernel};
use trace::requirements;
use trace::run;
use trace::signals::Signals;
use trace::targets::Settings;
use trace::window::nanoseconds;

use args::{Args, Group, NEEDS};
use intervals::Runqlat;
use windows::GATED;

mod args;
mod harvest;
mod intervals;
mod report;
mod slow;
mod windows;

fn main() -> ExitCode {
    run::main("runqlat", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return run::print_completions(shell, Args::command());
    }
    let mut targets = args.targets.resolve()?;
    requirements::check()?;
    let kernel = Kernel::probe()?;
    if args.common.probe {
        let programs = args.programs(&kernel, &targets);
        return probe::print("runqlat", &kernel, &NEEDS, &programs);
    }
    let hdr = args.histograms.hdr_log()?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let mut skel = load(args, &kernel, &targets)?;
    let slow_waits = Arrivals::open(&skel.maps.slow_waits)?;

    seed(args, &skel, &targets)?;
    let sampler = windows::sampler(args, &mut skel, &meter)?;
    let start_ns = match &sampler {
        Some((sampler, _)) => sampler.began_ns(),
        None => open_window(args, &mut skel)?,
    };
    if !args.common.quiet {
        trace::say!("runqlat: tracing run queue latency; Ctrl-C ends");
    }
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let mut reports = Runqlat {
        args,
        skel: &mut skel,
        slow_waits,
        hdr,
        start_ns,
        reseeding: Reseeding::default(),
        meter: &meter,
        sampler,
    };
    let written = report_each(
        &args.every,
        args.common.quiet,
        (&signals, command.as_mut()),
        &mut reports,
        &mut end_ns,
    );
    let cost = reports.cost(end_ns);
    let ran =
        run::unless_closed(written, ()).and_then(|()| close(args, &skel, &cost, end_ns - start_ns));
    finish(command, &signals, ran, args.common.quiet)
}

fn load(args: &Args, kernel: &Kernel, targets: &Settings) -> Result<RunqlatSkel<'static>> {
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        probe::say("runqlat", kernel, &NEEDS, &programs);
    }
    let gated = args.budget.gated(&GATED);
    loader::load_gated(RunqlatSkelBuilder::default(), &programs, gated, |open| {
        args.to_bpf(
            targets,
            section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
        );
        bpf::keep_members!(open, programs.contains(&("task_freed", true)));
        if args.group() == Group::Machine {
            // Preallocated, and not used.
            open.maps.groups.set_max_entries(1)?;
            open.maps.buckets.set_max_entries(1)?;
        }
        Ok(())
    })
}

/// Finds the targets; from now on less privilege will do.
fn seed(args: &Args, skel: &RunqlatSkel<'_>, targets: &Settings) -> Result<()> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    iterate::run(skel.links.seed_members.as_ref())?;
    privileges::keep_for_tracing("runqlat", args.targets.capabilities());
    Ok(())
}

/// Time counts from now on: for one interval if there is but one, else until told.
fn open_window(args: &Args, skel: &mut RunqlatSkel<'_>) -> Result<u64> {
    let length = args.every.only();
    let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
    let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
    Ok(open_edges(start_ns, end_ns, length.map(nanoseconds)))
}

fn close(args: &Args, skel: &RunqlatSkel<'_>, cost: &Cost, window_ns: u64) -> Result<Outcome> {
    let losses = harvest::losses(skel)?;
    let events = harvest::progress(skel)?.events;
    let closing = Closing {
        tool: "runqlat",
        window: Duration::from_nanos(window_ns),
        events: (events, closing::switches_and_wakeups(cost)),
        stacks: None,
        ends: None,
        losses: &losses,
        losses_of_ns: 0,
        cost,
    };
    closing.print(args.common.quiet);
    Ok(closing.outcome(args.common.strict))
}
