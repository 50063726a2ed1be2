//! The run, cut into intervals.

use std::io::{self, Write};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use profile::style::Style;
use trace::budget::{Limit, Next};
use trace::collect::{Until, collect};
use trace::cost::Cost;
use trace::meter::Meter;
use trace::progress::{Progress, State};
use trace::signals::Signals;
use trace::window::{Ticker, monotonic_ns};

use crate::args::Args;
use crate::capture::Capture;
use crate::report::{self, Look};
use crate::{harvest, json};

/// Prints one report per interval, or one in all.
pub(crate) fn report_each(
    args: &Args,
    capture: &mut Capture,
    (meter, mut limit): (&Meter, Option<&mut Limit<'_>>),
    signals: &Signals,
) -> Result<()> {
    let start_ns = capture.start_ns();
    let mut ticker = args
        .interval()
        .map(|interval| Ticker::new(start_ns, interval));
    for reports in 1.. {
        let mut until = Until::new(signals, None, capture.start_ns(), None);
        until.deadline_ns = ticker.as_ref().map(Ticker::next_ns);
        let progress = Progress::new(args.interval(), args.common.quiet);
        // With a budget only time wakes it.
        let fds = Vec::from_iter(capture.stacks_fd().filter(|_| limit.is_none()));
        collect(&mut until, &fds, &progress, || {
            let next = match &mut limit {
                Some(limit) => capture.heed(limit)?,
                None => Next::default(),
            };
            capture.step()?;
            Ok(State {
                next,
                events: harvest::events(&capture.skel)?,
                lost: harvest::losses(&capture.skel)?.total(),
                ..State::default()
            })
        })?;
        let over = until.is_interrupted();
        let is_used_up = match &mut limit {
            Some(limit) => limit.end_interval(capture.skel.object()),
            None => false,
        };
        let interval = capture.take(is_used_up)?;
        let look = Look {
            style: Style::from(args.common.uses_color()),
            legend: reports == 1,
            is_filtered: args.is_filtered(),
        };
        let stdout = &mut io::stdout().lock();
        let written = if args.common.json {
            let budget = limit.as_ref();
            let budget = budget.map(|limit| limit.summary(capture.start_ns()));
            let cost = Cost::read(meter, capture.skel.object(), budget);
            writeln!(stdout, "{}", json::interval(&interval, &cost))
        } else {
            report::write(&interval, look, stdout)
        };
        written
            .and_then(|()| stdout.flush())
            .context("write to stdout")?;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if args.count().is_some_and(|count| reports >= count) {
            break;
        }
    }
    Ok(())
}
