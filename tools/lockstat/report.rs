//! What lockstat says, in each format.

use std::io::{self, Write};

use anyhow::{Context, Result};
use host::clock::{nanoseconds, wall_clock};
use profile::ends;
use profile::folded::{self, FoldedOptions};
use profile::losses::Losses;
use profile::model::Profile;
use profile::style::Style;
use profile::text::write_lines;
use profile::write::{self, Meta};
use serde_json::{Map, Value};
use session::closing;
use session::next::is_there;
use session::output::Format;
use stacks::StackTable;

use crate::lockstat::args::Args;
use crate::lockstat::harvest::Harvest;
use crate::lockstat::losses::Ledger;
use crate::lockstat::row::Side;
use crate::lockstat::table::Look;
use crate::lockstat::waits::{self, DELAY};
use crate::lockstat::{answer, json, left_out, merge, next, stacks as listing, table};

/// An interval, ready to be told of.
pub(crate) struct Interval {
    pub(crate) harvest: Harvest,
    /// The waiters.
    pub(crate) profile: Profile,
    /// Of the run so far.
    pub(crate) ledger: Ledger,
    /// Processes whose tasks nobody sees, of the run so far.
    pub(crate) async_runtimes: Value,
}

/// Writes an interval's report to stdout, and the files.
pub(crate) fn report(args: &Args, interval: &Interval, stacks: &mut StackTable) -> Result<()> {
    // Files first: whoever reads stdout may have left.
    for file in &args.output {
        file.write(|mut out| write(args, file.format, interval, stacks, &mut out))?;
    }
    let mut out = io::stdout().lock();
    write(args, args.format(), interval, stacks, &mut out).context("write to stdout")
}

fn write(
    args: &Args,
    format: Format,
    interval: &Interval,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> Result<()> {
    let profile = &interval.profile;
    match format {
        Format::Human => write_human(args, &interval.harvest, stacks, out)?,
        Format::Folded => drop(folded::write(profile, &folded_options(args), out)?),
        Format::Json => profile::json::write(profile, &extra(interval, stacks), out)?,
        Format::File(write::Format::Pprof) => {
            let profile = waits::contentions(profile);
            write::write(&profile, write::Format::Pprof, &meta(interval), out)?;
        }
        Format::File(format) => write::write(profile, format, &meta(interval), out)?,
    }
    Ok(out.flush()?)
}

fn meta(interval: &Interval) -> Meta {
    let (ledger, window) = (&interval.ledger, interval.harvest.window());
    let waited_ns = waited_ns(&interval.harvest);
    let losses_of_ns = losses_of_ns(&ledger.losses, waited_ns);
    closing::meta(&ledger.losses, losses_of_ns, &ledger.cost, window)
}

/// The time waited, for work that was not asked for, too.
pub(crate) fn waited_ns(harvest: &Harvest) -> u64 {
    let shown: u64 = harvest.rows.iter().map(|row| row.total_ns).sum();
    let left_out: u64 = harvest.left_out.iter().map(|sum| sum.total_ns).sum();
    shown + left_out
}

/// Time that losses are a share of: what was waited, and what found no room among the locks. What found none among the waiters is
/// in its lock's sum.
pub(crate) fn losses_of_ns(losses: &Losses, waited_ns: u64) -> u64 {
    waited_ns + losses.time_ns("locks_full")
}

fn extra(interval: &Interval, stacks: &mut StackTable) -> Map<String, Value> {
    let ledger = &interval.ledger;
    Map::from_iter([
        ("start_ns".into(), interval.harvest.window_ns.start.into()),
        ("end_ns".into(), interval.harvest.window_ns.end.into()),
        ("user_ends".into(), ends::to_json(&interval.profile)),
        ("locks".into(), json::locks(&interval.harvest, stacks)),
        (
            "left_out".into(),
            json::left_out(&interval.harvest.left_out),
        ),
        (
            "begun_before".into(),
            serde_json::json!({"waits": ledger.begun_before}),
        ),
        ("async_runtimes".into(), interval.async_runtimes.clone()),
        ("losses".into(), ledger.losses.to_json()),
        ("cost".into(), ledger.cost.to_json()),
    ])
}

fn folded_options(args: &Args) -> FoldedOptions {
    FoldedOptions {
        delimiter: args.delimited,
        annotate: args.annotate,
        divisor: 1_000,
        value: Some(DELAY),
        ..FoldedOptions::default()
    }
}

fn write_human(
    args: &Args,
    harvest: &Harvest,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> Result<()> {
    let look = Look {
        top: args.top,
        hist: args.hist,
        style: Style::from(args.common.uses_color()),
    };
    if args.interval.is_some() {
        writeln!(out, "{}", wall_clock(harvest.window_ns.end))?;
    }
    let mut merged = merge::merge(&harvest.rows);
    // Some rows have only calls that came too late to wait.
    merged.retain(|row| row.contentions > 0 || row.total_ns > 0);
    let is_sure = harvest.left_out.iter().all(|sum| sum.unended_ns == 0);
    let window_ns = nanoseconds(harvest.window());
    match (merged.is_empty(), args.traces(Side::User)) {
        (true, false) => writeln!(out, "No thread waited for a lock of the kernel.")?,
        (true, true) => {
            writeln!(out, "{}", answer::nothing(is_sure))?;
        }
        (false, _) => {
            write_lines(answer::lines(&merged, window_ns), out)?;
        }
    }
    if !merged.is_empty() {
        writeln!(out)?;
    }
    table::write(&merged, look, out, |row, out| {
        listing::write(row, args.stacks, stacks, out)
    })?;
    left_out::write(&harvest.left_out, out)?;
    let next = next::next(args, &merged, window_ns, is_there);
    writeln!(out, "\n{next}\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::LeftOut;
    use crate::lockstat::row::tests::row;

    #[test]
    fn losses_of_time_are_shares_of_all_that_was_waited() {
        let harvest = Harvest {
            rows: vec![row(500), row(100)],
            window_ns: 0..1_000,
            left_out: vec![LeftOut {
                class: "cond",
                waits: 1,
                total_ns: 200,
                unended_ns: 1,
            }],
            work: Vec::new(),
        };
        let mut losses = Losses::default();
        losses.time("locks_full", "waits: table of locks full", 2, 200);
        losses.time("waiters_full", "waits without waiter: table full", 1, 50);
        let share = |harvest: &Harvest| losses.describe(losses_of_ns(&losses, waited_ns(harvest)));
        assert_eq!(
            share(&harvest),
            "LOST 2 waits: table of locks full (20.00% of the time), 1 wait without waiter: table full (5.00% of the time)"
        );
    }
}
