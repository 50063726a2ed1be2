//! pressure: which resource is short right now, and which tasks lose by it or cause it.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use trace::collect::{Until, collect};
use trace::progress::{Progress, State};
use trace::run::{self, Outcome};
use trace::signals::Signals;
use trace::window::{Ticker, monotonic_ns};

use args::Args;
use psi::Source;

mod args;
mod psi;
mod report;
mod utilisation;

fn main() -> ExitCode {
    run::main("pressure", || trace(&Args::parse()))
}

fn trace(args: &Args) -> Result<Outcome> {
    if let Some(shell) = args.completions {
        return Ok(run::print_completions(shell, Args::command()));
    }
    let source = args.cgroup.clone().map_or(Source::System, Source::Cgroup);
    run::check_privileges()?;
    let signals = Signals::install()?;
    eprintln!("pressure: tracing");
    let start_ns = monotonic_ns();
    let mut before = (psi::Snapshot::take(&source), utilisation::Snapshot::take());
    let mut ticker = args
        .every
        .interval
        .map(|interval| Ticker::new(start_ns, interval));
    for reports in 1.. {
        let mut until = Until::new(&signals, None, before.0.time_ns, None);
        until.deadline_ns = ticker.as_ref().map(Ticker::next_ns);
        let progress = Progress::new(args.every.interval, args.common.quiet);
        collect(&mut until, &[], &progress, || Ok(State::default()))?;
        let over = until.is_interrupted();
        let now = (psi::Snapshot::take(&source), utilisation::Snapshot::take());
        report::write_table(
            &now.1.since(&before.1),
            &before.0,
            &now.0,
            &mut io::stdout().lock(),
        )?;
        before = now;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if args.every.count.is_some_and(|count| reports >= count) {
            break;
        }
    }
    io::stdout().flush()?;
    Ok(Outcome::Done)
}
