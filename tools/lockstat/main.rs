//! lockstat: which locks make threads wait, for how long, and who holds them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use profile::units;
use trace::closing::Closing;
use trace::collect::finish;
use trace::command::Corked;
use trace::intervals::report_each;
use trace::meter::Meter;
use trace::outcome::Outcome;
use trace::output::OutputFile;
use trace::probe::{self, Kernel};
use trace::requirements;
use trace::run;
use trace::signals::Signals;
use trace::targets::Settings;

use args::{Args, NEEDS};
use capture::Capture;

mod args;
mod capture;
mod chains;
mod functions;
mod harvest;
mod json;
mod kernel;
mod known;
mod losses;
mod merge;
mod now;
mod report;
mod row;
mod setup;
mod stacks;
mod table;
#[cfg(test)]
mod table_tests;
mod user;
mod waits;
mod width;

/// Advice for runs that cost too much.
pub(crate) const REMEDY: &str = "raise it, or narrow the run with -p";

fn main() -> ExitCode {
    run::main("lockstat", || trace(Args::parse()))
}

fn trace(mut args: Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return run::print_completions(shell, Args::command());
    }
    let mut targets = args.targets.resolve()?;
    args.output
        .iter()
        .try_for_each(OutputFile::check_writable)?;
    requirements::check()?;
    if args.common.probe {
        return probe(&args, &targets);
    }
    if args.now {
        return now::run(&args, &targets);
    }
    let kernel = Kernel::probe()?;
    args.narrow_to(&kernel)?;
    let signals = Signals::install()?;
    let corked = Corked::for_targets(&args.targets.command, &mut targets)?;
    let meter = Meter::start();
    let attached = setup::load(&args, &kernel, &targets)?;
    let mut capture = Capture::open(&args, attached, &meter, corked.as_ref())?;

    let start_ns = capture.open_window(&targets)?;
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let written = report_each(
        &args.every(),
        args.common.quiet,
        (&signals, command.as_mut()),
        &mut capture,
        &mut end_ns,
    );
    let ran =
        run::unless_closed(written, ()).and_then(|()| close(&args, &capture, end_ns - start_ns));
    finish(command, &signals, ran, args.common.quiet)
}

/// What the mode would use; nothing is loaded.
fn probe(args: &Args, targets: &Settings) -> Result<Outcome> {
    let kernel = Kernel::probe()?;
    if args.now {
        return probe::print("lockstat", &kernel, &[], &now::PROGRAMS);
    }
    let programs = args.programs(&kernel, targets);
    probe::print("lockstat", &kernel, &NEEDS, &programs)
}

fn close(args: &Args, capture: &Capture<'_>, window_ns: u64) -> Result<Outcome> {
    let ledger = capture.ledger()?;
    let closing = Closing {
        tool: "lockstat",
        window: Duration::from_nanos(window_ns),
        events: (capture.waits(), "waits"),
        stacks: Some(capture.stacks.len()),
        ends: capture.ends(),
        losses: &ledger.losses,
        losses_of_ns: report::losses_of_ns(&ledger.losses, capture.waited_ns()),
        cost: &ledger.cost,
    };
    closing.print(args.common.quiet);
    if ledger.begun_before > 0 && !args.common.quiet {
        let waits = units::counted(ledger.begun_before, "waits");
        trace::say!("lockstat: begun before tracing, and left out: {waits}");
    }
    if args.common.verbose {
        trace::say!("lockstat: {}", capture.stacks.describe_unnamed());
        let missed = units::counted(capture.names.places.missed(), "locks");
        trace::say!("lockstat: {missed} in memory that was gone when it was looked at");
    }
    for file in &args.output {
        file.say("lockstat", args.common.quiet);
    }
    Ok(closing.outcome(args.common.strict))
}
