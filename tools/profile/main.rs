//! profile: where CPU time goes, or any other event.

use std::process::ExitCode;

use anyhow::Result;
use bpf::profile::{ProfileSkel, ProfileSkelBuilder};
use clap::CommandFactory;
use libbpf_rs::skel::Skel;
use trace::collect::finish;
use trace::command::Corked;
use trace::cost::Cost;
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

use args::{Args, NEEDS, Rate, Weight};
use attach::Attached;
use collection::Run;
use event::Event;
use moments::Moments;

mod args;
mod attach;
mod busy;
mod collection;
mod counters;
mod event;
mod harvest;
mod moments;
mod report;
mod sampled;
mod traps;

fn main() -> ExitCode {
    run::main("profile", || trace(&Args::from_command_line()?))
}

fn trace(args: &Args) -> Result<Outcome> {
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
        let programs = args.programs(&targets);
        return probe::print("profile", &kernel, &NEEDS, &programs);
    }
    let weight = attach::weight(args)?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let mut skel = load(args, &kernel, &targets, weight)?;
    let unwinder = Unwinder::new(
        args.stacks.unwind,
        bpf::unwind_maps!(skel),
        &args.targets.wanted(),
    )?;
    let mut stacks = StackTable::new(args.stacks.symbolizer()?, unwinder, args.origin());
    stacks.listen(&skel.maps.stack_ring)?;
    let mut moments = Moments::open(args.keeps_moments(), &skel)?;
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;

    stacks.prepare(
        args.targets.processes_at_start(),
        corked.as_ref().map(Corked::who),
    );
    let mut attached = Attached::new(args, &skel)?;
    privileges::keep_for_tracing("profile", &args.capabilities());
    let mut run = Run {
        args,
        skel: &mut skel,
        stacks: &mut stacks,
        moments: &mut moments,
        attached: &mut attached,
        signals: &signals,
        meter: &meter,
    };
    let (mut harvest, budget, command) = match args.budget.max_overhead {
        None => run.everything(corked)?,
        Some(percent) => run.in_windows(percent, corked)?,
    };
    moments.finish(&skel, &mut harvest.losses)?;
    let cost = Cost::read(&meter, skel.object(), budget);
    let written = report::report(args, &harvest, &moments, &mut stacks, &cost);
    let ran = run::unless_closed(written, Outcome::Done);
    finish(command, &signals, ran, args.common.quiet)
}

fn load(
    args: &Args,
    kernel: &Kernel,
    targets: &Settings,
    weight: Weight,
) -> Result<ProfileSkel<'static>> {
    let programs = args.programs(targets);
    if args.common.verbose {
        probe::say("profile", kernel, &NEEDS, &programs);
    }
    loader::load(ProfileSkelBuilder::default(), &programs, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(targets, weight, rodata);
        Ok(open.maps.moments.set_autocreate(args.keeps_moments())?)
    })
}

impl Args {
    /// Whose frames lie at the leaf end of kernel stacks.
    fn origin(&self) -> Origin {
        match self.event {
            Event::Counter { .. } => Origin::Sample,
            _ => Origin::Tracepoint,
        }
    }

    /// For the line that says that tracing has begun.
    fn describe(&self) -> String {
        let what = match &self.event {
            Event::Uprobe { path, symbol } => format!("{symbol} in {path}"),
            event => event.short_name(),
        };
        match (self.rate(), &self.weight) {
            (Rate::Hertz(hertz), _) => format!("{what} at {hertz} Hz"),
            (Rate::Every(1), None) => what,
            (Rate::Every(1), Some(weight)) => format!("{what} by {weight}"),
            (Rate::Every(period), None) => format!("{what}, every {period}"),
            (Rate::Every(period), Some(weight)) => format!("{what} by {weight}, every {period}"),
        }
    }
}
