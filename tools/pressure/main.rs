//! pressure: which resource is short right now, and which tasks lose by it or cause it.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Result;
use budget::meter::Meter;
use host::clock::monotonic_ns;
use host::privileges;
use session::Options;
use session::outcome::Outcome;
use session::program;

use args::Args;
use armed::{Armed, Event};
use capture::Capture;
use engine::Pressure;

mod args;
mod armed;
mod capture;
mod cgroup_table;
mod cgroups;
mod ended;
mod engine;
mod harvest;
mod hints;
mod interval;
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

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    program::main(Args::NAME, line, || trace(Args::from_command_line(line)?))
}

/// Captures once, or whenever the trigger fires.
fn trace(mut args: Args) -> Result<Outcome> {
    let start = match session::start(&mut args)? {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(start) => start,
    };
    let source = args.source()?;
    let armed = args.trigger.map(|trigger| Armed::set(trigger, &source));
    let armed = armed.transpose()?;
    if let Some(why) = source.absence().filter(|_| !args.common.quiet) {
        profile::say!("pressure: {why}; SOME, FULL and AVG10 are unknown");
    }
    if args.stacks && !args.common.quiet {
        privileges::say_unseen(Args::NAME);
    }
    let mut outcome = Outcome::Done;
    loop {
        let mut capture = Capture::prepare(&args, &start, &source)?;
        let fired = match &armed {
            Some(armed) => match armed::wait(&args, armed, &start.signals, &mut capture)? {
                (Event::Interrupted, _) => return Ok(outcome),
                (Event::Fired, urgency) => Some((monotonic_ns(), urgency)),
            },
            None => None,
        };
        let meter = Meter::start();
        let fired_ns = fired.as_ref().map(|(fired_ns, _)| *fired_ns);
        let mut engine = Pressure::attach(&args, &source, capture, &meter, fired_ns)?;
        // The urgency ends here.
        drop(fired);
        let lossy = session::trace(&args, &mut engine, &start.signals, None)?;
        if lossy != Outcome::Done {
            outcome = lossy;
        }
        if !args.repeat || start.signals.ended() {
            return Ok(outcome);
        }
    }
}
