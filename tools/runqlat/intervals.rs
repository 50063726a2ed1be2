//! The run, cut into intervals.

use std::io::{self, Write};

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use trace::collect::{Until, collect};
use trace::command::Running;
use trace::histogram::hdr::HdrLog;
use trace::iterate::Reseeding;
use trace::loader::section;
use trace::progress::Progress;
use trace::signals::Signals;
use trace::window::{Ticker, monotonic_ns};

use crate::args::Args;
use crate::harvest::{self, Interval};
use crate::report;
use crate::slow::SlowWaits;

/// Prints one report per interval, or one in all. `end_ns` is when the window opened, and becomes the end of the last
/// interval that was taken, written or not.
pub(crate) fn report_each(
    args: &Args,
    skel: &mut RunqlatSkel<'_>,
    slow_waits: &SlowWaits,
    (signals, mut command): (&Signals, Option<&mut Running>),
    mut hdr: Option<&mut HdrLog>,
    end_ns: &mut u64,
) -> Result<()> {
    let start_ns = *end_ns;
    let mut ticker = args
        .every
        .interval
        .map(|interval| Ticker::new(start_ns, interval));
    let mut reseeding = Reseeding::default();
    for reports in 1.. {
        let mut until = Until::new(signals, command.as_deref_mut(), *end_ns, None);
        until.deadline_ns = ticker.as_ref().map(Ticker::next_ns);
        let progress = Progress::new(args.every.interval, args.common.quiet);
        collect(&mut until, &[slow_waits.fd()], &progress, || {
            slow_waits.print(args, &mut io::stdout().lock())?;
            let moves = section(skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
            reseeding.follow(moves, skel.links.seed_members.as_ref())?;
            harvest::progress(skel)
        })?;
        let over = until.is_interrupted();
        let interval = Interval::take(args, skel, *end_ns)?;
        *end_ns = interval.end_ns;
        let stdout = &mut io::stdout().lock();
        report::write(args, &interval, hdr.as_deref_mut(), start_ns, stdout)?;
        let Some(ticker) = ticker.as_mut().filter(|_| !over) else {
            break;
        };
        ticker.advance(monotonic_ns());
        if args.every.count.is_some_and(|count| reports >= count) {
            break;
        }
    }
    Ok(io::stdout().flush()?)
}
