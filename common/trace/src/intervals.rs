//! A run cut into intervals, one report each.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::Result;

use crate::collect::{Until, collect};
use crate::command::Running;
use crate::progress::{Progress, State};
use crate::signals::Signals;
use crate::window::{Every, Ticker, monotonic_ns};

/// A tool that reports repeatedly.
pub trait Reports {
    /// What wakes [`Self::step`] early when readable.
    fn fds(&self) -> Vec<RawFd>;

    /// What there is to do some 20 times a second.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn step(&mut self) -> Result<State>;

    /// When the last interval ends, whether or not it is a whole one, ns; `None`: no time is set.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// The interval under way is the last one and ends at `end_ns`, ns, by the clock. Where the BPF side sees to that, nothing that
    /// happens until the report is asked for is counted, or costs what counting does. A tool whose first interval is the last
    /// one has said so when it opened its window: what it announces is true from then on, though it may be stopped at once.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn close_at(&mut self, _end_ns: u64) -> Result<()> {
        Ok(())
    }

    /// Takes the interval that began at `start_ns` out of the BPF side and writes it. `end_ns` becomes the interval's end as
    /// soon as it is taken, whether or not writing succeeds.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()>;
}

/// Reports every interval, or once in all. `end_ns` is when the window opened, and becomes the end of the last interval that was
/// taken.
///
/// # Errors
///
/// Those of `reports`, and of stdout.
pub fn report_each(
    every: &Every,
    quiet: bool,
    (signals, mut command): (&Signals, Option<&mut Running>),
    reports: &mut impl Reports,
    end_ns: &mut u64,
) -> Result<()> {
    let mut ticker = every
        .interval
        .map(|interval| Ticker::new(*end_ns, interval));
    for count in 1.. {
        let mut until = Until::new(signals, command.as_deref_mut(), *end_ns, None);
        let deadline_ns = reports.deadline_ns();
        let tick_ns = ticker.as_ref().map(Ticker::next_ns);
        until.deadline_ns = tick_ns.into_iter().chain(deadline_ns).min();
        let whole = until.deadline_ns.map(|end| end.saturating_sub(*end_ns));
        // What has passed already is counted.
        let is_last = |end_ns: &u64| {
            (every.count == Some(count) || deadline_ns == Some(*end_ns)) && *end_ns > monotonic_ns()
        };
        if let Some(end_ns) = until.deadline_ns.filter(is_last) {
            reports.close_at(end_ns)?;
        }
        let progress = Progress::new(whole.map(Duration::from_nanos), quiet);
        collect(&mut until, &reports.fds(), &progress, || reports.step())?;
        let is_due = deadline_ns.is_some_and(|deadline| monotonic_ns() >= deadline);
        let over = until.is_interrupted() || is_due;
        reports.report(*end_ns, end_ns)?;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if every.count.is_some_and(|wanted| count >= wanted) {
            break;
        }
    }
    Ok(io::stdout().flush()?)
}
