//! offcputime: where threads wait, why, and who woke them.

use std::process::ExitCode;

use anyhow::Result;
use bpf::offcputime::{OffcputimeSkel, OffcputimeSkelBuilder};
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::collect::finish;
use trace::command::Corked;
use trace::cost::Cost;
use trace::iterate;
use trace::loader::{self, section};
use trace::meter::Meter;
use trace::outcome::Outcome;
use trace::output::OutputFile;
use trace::privileges;
use trace::probe::{self, Kernel};
use trace::requirements;
use trace::run;
use trace::signals::Signals;
use trace::stacks::StackTable;
use trace::symbolize::Origin;
use trace::targets::Settings;
use trace::unwind::Unwinder;

use args::{Args, NEEDS};
use collection::Run;

mod args;
mod collection;
mod harvest;
mod idle;
mod losses;
mod report;
mod sampled;

fn main() -> ExitCode {
    run::main("offcputime", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    args.refuse_contradictions();
    if let Some(shell) = args.completions {
        return run::print_completions(shell, Args::command());
    }
    let mut targets = args.targets.resolve()?;
    args.stacks
        .output
        .iter()
        .try_for_each(OutputFile::check_writable)?;
    requirements::check()?;
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
    stacks.listen(&skel.maps.stack_ring)?;

    stacks.prepare(
        args.targets.processes_at_start(),
        corked.as_ref().map(Corked::who),
    );
    seed(args, &skel, &targets)?;
    let mut run = Run {
        args,
        skel: &mut skel,
        stacks: &mut stacks,
        signals: &signals,
        meter: &meter,
    };
    let (harvest, budget, command) = match args.budget.max_overhead {
        None => run.everything(corked)?,
        Some(percent) => run.in_windows(percent, corked)?,
    };
    let cost = Cost::read(&meter, skel.object(), budget);
    let written = report::report(args, &harvest, &mut stacks, &cost);
    let ran = run::unless_closed(written, Outcome::Done);
    finish(command, &signals, ran, args.common.quiet)
}

fn load(args: &Args, kernel: &Kernel, targets: &Settings) -> Result<OffcputimeSkel<'static>> {
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        probe::say("offcputime", kernel, &NEEDS, &programs);
    }
    let walk_on_exit = kernel.has_tracepoint("sched_exit_tp");
    let gated = args.budget.gated(&sampled::GATED);
    let skel = loader::load_gated(OffcputimeSkelBuilder::default(), &programs, gated, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(targets, walk_on_exit, rodata);
        bpf::keep_members!(open, programs.contains(&("task_freed", true)));
        Ok(())
    })?;
    Ok(skel)
}

/// Finds the targets; from now on less privilege will do.
fn seed(args: &Args, skel: &OffcputimeSkel<'_>, targets: &Settings) -> Result<()> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    iterate::run(skel.links.seed_members.as_ref())?;
    let also = [args.targets.capabilities(), args.stacks.capabilities()];
    privileges::keep_for_tracing("offcputime", &also.concat());
    Ok(())
}
