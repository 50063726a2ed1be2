//! biolatency: how long block I/O takes, queued and in the device; how busy disks are; what failed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::arrivals::Arrivals;
use trace::closing::Closing;
use trace::collect::finish;
use trace::command::Corked;
use trace::cost::Cost;
use trace::intervals::report_each;
use trace::losses::Losses;
use trace::meter::Meter;
use trace::outcome::Outcome;
use trace::probe::{self, Kernel};
use trace::requirements;
use trace::run;
use trace::signals::Signals;

use args::{Args, NEEDS};
use harvest::Harvest;
use intervals::Biolatency;
use names::Names;

mod args;
mod completions;
mod disk_use;
mod disks;
mod harvest;
mod intervals;
mod json;
mod labels;
mod names;
mod report;
mod setup;
mod slow;

/// Advice for runs that cost too much.
const REMEDY: &str = "raise it, or ask for fewer histograms";

fn main() -> ExitCode {
    run::main("biolatency", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return run::print_completions(shell, Args::command());
    }
    let (mut targets, cgroup_id) = setup::resolve(&args.targets)?;
    let devs: Vec<u32> = args
        .disks
        .iter()
        .map(disks::Disk::dev)
        .collect::<Result<_>>()?;
    requirements::check()?;
    let kernel = Kernel::probe()?;
    if args.common.probe {
        let programs = args.programs(&kernel, &targets);
        return probe::print("biolatency", &kernel, &NEEDS, &programs);
    }
    let hdr = args.histograms.hdr_log()?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let mut skel = setup::load(args, (&targets, cgroup_id), &kernel)?;
    disks::fill(&devs, &skel.maps.wanted_devs)?;

    setup::seed(args, &skel, &targets)?;
    let start_ns = setup::open_window(&mut skel)?;
    let who = ("biolatency", REMEDY, args.common.verbose);
    let limit = args.budget.limit(who, &meter, skel.object())?;
    let harvest = Harvest::begin(args);
    let slow_ios = Arrivals::open(&skel.maps.slow_ios)?;
    setup::announce(args);
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let mut reports = Biolatency {
        args,
        names: Names::of(&kernel),
        slow_ios,
        harvest,
        skel: &mut skel,
        hdr,
        start_ns,
        requests: 0,
        meter: &meter,
        limit,
    };
    let written = report_each(
        &args.every,
        args.common.quiet,
        (&signals, command.as_mut()),
        &mut reports,
        &mut end_ns,
    );
    let cost = reports.cost(end_ns);
    let (harvest, requests) = (reports.harvest, reports.requests);
    let window = Duration::from_nanos(end_ns - start_ns);
    let ran = run::unless_closed(written, ())
        .and_then(|()| harvest.losses(&skel))
        .map(|losses| close(args, window, requests, &losses, &cost));
    finish(command, &signals, ran, args.common.quiet)
}

fn close(args: &Args, window: Duration, requests: u64, losses: &Losses, cost: &Cost) -> Outcome {
    let closing = Closing {
        tool: "biolatency",
        window,
        events: (requests, "requests"),
        stacks: None,
        ends: None,
        losses,
        losses_of_ns: 0,
        cost,
    };
    closing.print(args.common.quiet);
    closing.outcome(args.common.strict)
}
