//! offcputime: where threads wait, why, and who woke them.

use std::process::ExitCode;

use anyhow::Result;
use bpf::offcputime::{OffcputimeSkel, OffcputimeSkelBuilder};
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::collect::{Until, collect, finish};
use trace::command::Corked;
use trace::cost::Meter;
use trace::iterate::{self, Reseeding};
use trace::loader::{self, section};
use trace::output::OutputFile;
use trace::privileges;
use trace::probe::{self, Kernel};
use trace::progress::Progress;
use trace::run::{self, Outcome};
use trace::signals::Signals;
use trace::stacks::{Ring, StackTable};
use trace::symbolize::Origin;
use trace::targets::Settings;
use trace::unwind::Unwinder;
use trace::window::monotonic_ns;

use args::{Args, NEEDS};
use harvest::Harvest;

mod args;
mod harvest;
mod idle;
mod report;

fn main() -> ExitCode {
    run::main("offcputime", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return Ok(run::print_completions(shell, Args::command()));
    }
    let mut targets = args.targets.resolve()?;
    args.stacks
        .output
        .iter()
        .try_for_each(OutputFile::check_writable)?;
    run::check_privileges()?;
    let kernel = Kernel::probe()?;
    if args.common.probe {
        let programs = args.programs(&kernel, &targets);
        return probe::print("offcputime", &kernel, &NEEDS, &programs);
    }
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let mut skel = load(args, &kernel, &targets)?;
    let unwinder = Unwinder::new(
        args.stacks.unwind,
        bpf::unwind_maps!(skel),
        &args.targets.wanted(),
    )?;
    let mut stacks = StackTable::new(args.stacks.symbolizer()?, unwinder, Origin::Tracepoint);
    let ring = Ring::open(&skel.maps.stack_ring)?;

    stacks.prepare(
        args.targets.processes_at_start(),
        corked.as_ref().map(Corked::who),
    );
    let start_ns = open_window(args, &mut skel, &targets)?;
    let mut command = corked.map(Corked::start).transpose()?;
    let progress = Progress::new(args.window.duration, args.common.quiet);
    let mut until = Until::new(&signals, command.as_mut(), start_ns, args.window.duration);
    let mut reseeding = Reseeding::default();
    collect(&mut until, &[ring.fd(), stacks.fd()], &progress, || {
        stacks.absorb(&ring);
        let moves = section(skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        reseeding.follow(moves, skel.links.seed_members.as_ref())?;
        harvest::progress(&skel, &stacks)
    })?;
    let end_ns = close_window(&mut skel)?;

    stacks.absorb(&ring);
    let harvest = Harvest::gather(args, &skel, &mut stacks, start_ns, end_ns)?;
    let cost = meter.read(skel.object());
    let written = report::report(args, &harvest, &mut stacks, &cost);
    let outcome = run::unless_closed(written, Outcome::Done)?;
    finish(command, &signals, outcome)
}

fn load(args: &Args, kernel: &Kernel, targets: &Settings) -> Result<OffcputimeSkel<'static>> {
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        eprint!(
            "{}",
            probe::describe("offcputime", kernel, &NEEDS, &programs)
        );
    }
    let walk_on_exit = kernel.has_tracepoint("sched_exit_tp");
    let skel = loader::load(OffcputimeSkelBuilder::default(), &programs, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(targets, walk_on_exit, rodata);
        bpf::keep_members!(open, programs.contains(&("task_freed", true)));
        Ok(())
    })?;
    Ok(skel)
}

/// Finds the targets, then lets time count: everything before has no part in the report.
fn open_window(args: &Args, skel: &mut OffcputimeSkel<'_>, targets: &Settings) -> Result<u64> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    iterate::run(skel.links.seed_members.as_ref())?;
    let also = [args.targets.capabilities(), args.stacks.capabilities()];
    privileges::keep_for_tracing("offcputime", &also.concat());
    let start_ns = monotonic_ns();
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
    if !args.common.quiet {
        eprintln!("offcputime: tracing {}", args.window.describe());
    }
    Ok(start_ns)
}

fn close_window(skel: &mut OffcputimeSkel<'_>) -> Result<u64> {
    let end_ns = monotonic_ns();
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.window_end_ns = end_ns;
    Ok(end_ns)
}
