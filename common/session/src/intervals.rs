//! A run cut into intervals, one report each.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use host::clock::{monotonic_ns, nanoseconds};

use crate::Engine;
use crate::collect::{Ending, Until, collect};
use crate::progress::Progress;
use crate::schedule::{Schedule, Ticker};

/// Reports every interval, or once in all. `end_ns` is when the window opened, and becomes the end of the last interval that was
/// taken.
pub(super) fn report_each(
    schedule: &Schedule,
    quiet: bool,
    mut ending: Ending<'_>,
    engine: &mut impl Engine,
    end_ns: &mut u64,
) -> Result<()> {
    let mut ticker = schedule
        .interval
        .map(|interval| Ticker::new(*end_ns, interval));
    let deadline_ns = schedule
        .duration
        .map(|duration| end_ns.saturating_add(nanoseconds(duration)));
    let mut events = 0;
    for count in 1.. {
        let before = events;
        let mut until = Until::new(&mut ending, *end_ns);
        let tick_ns = ticker.as_ref().map(Ticker::next_ns);
        until.deadline_ns = tick_ns.into_iter().chain(deadline_ns).min();
        let whole = until.deadline_ns.map(|end| end.saturating_sub(*end_ns));
        // An end that has passed already closes nothing.
        let is_last = |end_ns: &u64| {
            (schedule.count == Some(count) || deadline_ns == Some(*end_ns))
                && *end_ns > monotonic_ns()
        };
        if let Some(end_ns) = until.deadline_ns.filter(is_last).filter(|_| count > 1) {
            engine.close_at(end_ns)?;
        }
        let progress = Progress::new(whole.map(Duration::from_nanos), quiet);
        let fds = engine.fds();
        let collected = collect(&mut until, &fds, &progress, || {
            let state = engine.step()?;
            events = state.events;
            Ok(state.since(before))
        });
        if collected.is_err() {
            // Nobody may read any more: what is said at the end is of the time until now.
            *end_ns = monotonic_ns();
        }
        collected?;
        let is_due = deadline_ns.is_some_and(|deadline| monotonic_ns() >= deadline);
        let over = until.is_interrupted() || is_due;
        engine.report(*end_ns, end_ns)?;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if schedule.count.is_some_and(|wanted| count >= wanted) {
            break;
        }
    }
    Ok(io::stdout().flush()?)
}
