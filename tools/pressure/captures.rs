//! A run of pressure: one capture, or one whenever the trigger fires.

use std::ops::ControlFlow;

use anyhow::Result;
use budget::meter::Meter;
use host::clock::monotonic_ns;
use host::privileges;
use session::Options;
use session::outcome::Outcome;

use crate::pressure::args::Args;
use crate::pressure::armed::{self, Armed, Event};
use crate::pressure::capture::Capture;
use crate::pressure::engine::Pressure;

/// Captures once, or whenever the trigger fires.
pub(crate) fn run(mut args: Args) -> Result<Outcome> {
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
