//! biolatency: how long block I/O takes, queued and in the device; how busy disks are; what failed.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use bpf::biolatency::{BiolatencySkel, BiolatencySkelBuilder};
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::arrivals::Arrivals;
use trace::cgroups;
use trace::closing::Closing;
use trace::collect::finish;
use trace::command::Corked;
use trace::cost::Meter;
use trace::histogram::hdr::HdrLog;
use trace::intervals::report_each;
use trace::iterate;
use trace::loader::{self, section};
use trace::probe::Kernel;
use trace::run::{self, Outcome};
use trace::signals::Signals;
use trace::targets::{Settings, Targets};
use trace::window::monotonic_ns;

use args::Args;
use harvest::Harvest;
use intervals::Biolatency;
use names::Names;

mod args;
mod disks;
mod harvest;
mod intervals;
mod json;
mod labels;
mod names;
mod report;
mod slow;

fn main() -> ExitCode {
    run::main("biolatency", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return Ok(run::print_completions(shell, Args::command()));
    }
    let (mut targets, cgroup_id) = resolve(&args.targets)?;
    let devs: Vec<u32> = args
        .disks
        .iter()
        .map(disks::Disk::dev)
        .collect::<Result<_>>()?;
    run::check_privileges()?;
    let hdr = args
        .hdr
        .as_deref()
        .map(|path| HdrLog::create(path, SystemTime::now()))
        .transpose()?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let kernel = Kernel::probe()?;
    let mut skel = load(args, (&targets, cgroup_id), &kernel)?;
    disks::fill(&devs, &skel.maps.wanted_devs)?;

    let start_ns = open_window(args, &mut skel, &targets)?;
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let mut reports = Biolatency {
        args,
        names: Names::of(&kernel),
        slow_ios: Arrivals::open(&skel.maps.slow_ios)?,
        harvest: Harvest::begin(args),
        skel: &mut skel,
        hdr,
        start_ns,
        requests: 0,
    };
    let written = report_each(
        &args.every,
        args.common.quiet,
        (&signals, command.as_mut()),
        &mut reports,
        &mut end_ns,
    );
    run::unless_closed(written, ())?;
    let (harvest, requests) = (reports.harvest, reports.requests);
    let losses = harvest.losses(&skel)?;
    let cost = meter.read(skel.object());
    let closing = Closing {
        tool: "biolatency",
        window: Duration::from_nanos(end_ns - start_ns),
        events: (requests, "requests"),
        stacks: None,
        ends: None,
        losses: &losses,
        losses_of_ns: 0,
        cost: &cost,
    };
    closing.print(args.common.quiet);
    let outcome = closing.outcome(args.common.strict);
    finish(command, &signals, outcome)
}

/// The submitters, and the cgroup, which is not theirs but that of the I/O.
fn resolve(targets: &Targets) -> Result<(Settings, u64)> {
    let submitters = Targets {
        cgroup: None,
        ..targets.clone()
    };
    let cgroup_id = targets.cgroup.as_deref().map(cgroups::block_cgroup_id);
    Ok((submitters.resolve()?, cgroup_id.transpose()?.unwrap_or(0)))
}

fn load(
    args: &Args,
    (targets, cgroup_id): (&Settings, u64),
    kernel: &Kernel,
) -> Result<BiolatencySkel<'static>> {
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        eprintln!("biolatency: {}", loader::describe(&programs));
    }
    loader::load(BiolatencySkelBuilder::default(), &programs, |open| {
        args.to_bpf(
            (targets, cgroup_id),
            kernel,
            section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
        );
        // Preallocated, and not used.
        if !args.is_grouped() {
            open.maps.groups.set_max_entries(1)?;
            open.maps.buckets.set_max_entries(1)?;
        }
        if !args.tracks() {
            // Only for what the kernel does not stamp.
            open.maps.started.set_max_entries(16_384)?;
        }
        if !args.phases {
            open.maps.submitted.set_max_entries(1)?;
        }
        Ok(())
    })
}

/// Says what is asked for, then lets time count.
fn open_window(args: &Args, skel: &mut BiolatencySkel<'_>, targets: &Settings) -> Result<u64> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    iterate::run(skel.links.note_namespace.as_ref())?;
    let start_ns = monotonic_ns();
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
    if !args.common.quiet {
        let measured: Vec<&str> = args.measured().iter().map(|phase| phase.title()).collect();
        eprintln!(
            "biolatency: tracing block I/O, time {}; Ctrl-C ends",
            measured.join(", ")
        );
    }
    Ok(start_ns)
}
