//! pressure: which resource is short right now, and which tasks lose by it or cause it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use libbpf_rs::skel::Skel;
use trace::closing::Closing;
use trace::cost::Cost;
use trace::detaching;
use trace::meter::Meter;
use trace::outcome::Outcome;
use trace::privileges;
use trace::probe::{self, Kernel};
use trace::requirements;
use trace::run;
use trace::signals::Signals;
use trace::window::monotonic_ns;

use args::{Args, NEEDS};
use armed::{Armed, Event};
use capture::Capture;
use psi::Source;
use urgency::Urgency;

mod args;
mod armed;
mod capture;
mod cgroup_table;
mod cgroups;
mod ended;
mod harvest;
mod hints;
mod interval;
mod intervals;
mod json;
mod parties;
mod psi;
mod ranking;
mod report;
mod stacks;
mod task;
mod trigger;
mod urgency;
mod utilisation;
mod victims;

/// Advice for runs that cost too much.
pub(crate) const REMEDY: &str = "raise it, or trace for less time";

fn main() -> ExitCode {
    run::main("pressure", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return run::print_completions(shell, Args::command());
    }
    let source = args.source()?;
    requirements::check()?;
    args.budget.check()?;
    let kernel = Kernel::probe()?;
    if args.common.probe {
        let programs = args.programs(&kernel);
        return probe::print("pressure", &kernel, &NEEDS, &programs);
    }
    let armed = args
        .trigger
        .map(|trigger| Armed::set(trigger, &source))
        .transpose()?;
    let signals = Signals::install()?;
    if let Some(why) = source.absence().filter(|_| !args.common.quiet) {
        trace::say!("pressure: {why}; SOME, FULL and AVG10 are unknown");
    }
    let mut outcome = Outcome::Done;
    loop {
        let mut capture = Capture::prepare(args, &kernel, &source)?;
        let fired = match &armed {
            Some(armed) => match armed::wait(args, armed, &signals, &mut capture)? {
                (Event::Interrupted, _) => return Ok(outcome),
                (Event::Fired, urgency) => Some((monotonic_ns(), urgency)),
            },
            None => None,
        };
        let lossy = report(args, &source, capture, &signals, fired)?;
        if lossy != Outcome::Done {
            outcome = lossy;
        }
        if !args.repeat || signals.ended() {
            return Ok(outcome);
        }
    }
}

fn report(
    args: &Args,
    source: &Source,
    mut capture: Capture,
    signals: &Signals,
    fired: Option<(u64, Urgency)>,
) -> Result<Outcome> {
    let meter = Meter::start();
    let mut limit = capture.begin(args, &meter)?;
    let start_ns = capture.start_ns();
    // The urgency ends here.
    let delay_ns = fired.map(|(fired_ns, _urgency)| start_ns.saturating_sub(fired_ns));
    let also = if args.repeat {
        privileges::FOR_REPETITION
    } else {
        &[]
    };
    privileges::keep_for_tracing("pressure", also);
    announce(args, source, delay_ns.map(Duration::from_nanos));
    let written = intervals::report_each(args, &mut capture, (&meter, limit.as_mut()), signals);
    run::unless_closed(written, ())?;
    let losses = capture.losses()?;
    let window_ns = capture.start_ns().saturating_sub(start_ns);
    let budget = limit.map(|limit| limit.summary(capture.start_ns()));
    let cost = Cost::read(&meter, capture.skel.object(), budget);
    let closing = Closing {
        tool: "pressure",
        window: Duration::from_nanos(window_ns),
        events: (harvest::events(&capture.skel)?, "switches and wakeups"),
        stacks: capture.stacks(),
        ends: None,
        losses: &losses,
        losses_of_ns: window_ns.saturating_mul(cost.cpus),
        cost: &cost,
    };
    closing.print(args.common.quiet);
    if !args.repeat {
        detaching::hand_over(args.common.quiet);
    }
    Ok(closing.outcome(args.common.strict))
}

fn announce(args: &Args, source: &Source, delay: Option<Duration>) {
    if args.common.quiet {
        return;
    }
    let whose = match source {
        Source::System => "the machine".into(),
        Source::Cgroup(path) => path.display().to_string(),
    };
    let late = delay.map_or(String::new(), |delay| {
        format!(", {:.1} ms after the trigger", delay.as_secs_f64() * 1e3)
    });
    trace::say!("pressure: tracing {whose}{late}; Ctrl-C ends");
}
