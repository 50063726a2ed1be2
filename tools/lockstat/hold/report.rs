//! Hold times for people.

use std::io::{self, Write};

use profile::escape::terminal;
use profile::style::Style;
use profile::units;
use trace::histogram::text::{self, Unit};

use super::Price;
use super::children::Forked;
use super::harvest::{Harvest, Row};
use crate::args::Args;

pub(crate) fn write(
    args: &Args,
    harvest: &Harvest,
    price: &Price,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", price.describe())?;
    if let Some(stopped) = &price.stopped {
        writeln!(out, "{}", stopped.describe(args.hold_limit))?;
    }
    if price.forked.processes > 0 {
        writeln!(out, "{}", price.forked.describe())?;
    }
    if harvest.taken_before > 0 {
        let before = units::counted(harvest.taken_before, "holds");
        writeln!(out, "{before} had begun before")?;
    }
    if harvest.rows.is_empty() {
        return writeln!(out, "\nNo lock was held.");
    }
    let style = Style::from(args.common.uses_color());
    let heading = format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}  {:<14}  LOCK",
        "HOLDS", "TOTAL", "AVG", "P50", "P99", "MAX", "FAILED", "KIND"
    );
    writeln!(out, "\n{}", style.bold(heading))?;
    for row in harvest.rows.iter().take(args.top) {
        write_row(row, out)?;
        if args.hist && row.holds.count() > 0 {
            text::write(&row.holds, Unit::default(), out)?;
            writeln!(out)?;
        }
    }
    let hidden = harvest.rows.len().saturating_sub(args.top);
    if hidden > 0 {
        writeln!(
            out,
            "{}; -n shows them",
            units::counted(hidden as u64, "more locks")
        )?;
    }
    Ok(())
}

fn write_row(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let holds = &row.holds;
    let caller = row.caller.as_deref().map(terminal);
    let caller = caller
        .map(|caller| format!(", longest by {caller}"))
        .unwrap_or_default();
    let mut notes = String::new();
    if row.open > 0 {
        notes += &format!(", {} still held", row.open);
    }
    if row.timed_out > 0 {
        notes += &format!(", {}", units::counted(row.timed_out, "waits given up"));
    }
    writeln!(
        out,
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}  {:<14}  {} of PID {}{caller}{notes}",
        units::count(holds.count()),
        units::duration(holds.sum()),
        units::duration(holds.mean()),
        units::duration(holds.percentile(50.0)),
        units::duration(holds.percentile(99.0)),
        units::duration(holds.max()),
        units::count(row.tries_failed),
        row.mode.name(),
        terminal(&row.name),
        row.tgid,
    )
}

impl Forked {
    /// `2 processes forked meanwhile had probes, too, …`
    fn describe(&self) -> String {
        let processes = units::counted(self.processes, "processes");
        match self.freed_within_ns {
            0 => format!("{processes} forked meanwhile trapped once at each probe, uncounted"),
            ns => format!(
                "{processes} forked meanwhile had the probes, too, for {} at most: traps that are in no sum here",
                units::duration(ns)
            ),
        }
    }
}

impl Price {
    /// `12,345 traps at 1.40 us each (measured): 17.3 ms of the 1.02 s …`
    fn describe(&self) -> String {
        format!(
            "{} at {} each (measured): {} of the {} that the target had on a CPU in {}; a hold is up to {} longer for it",
            units::counted(self.traps, "traps"),
            units::duration(self.trap_ns),
            units::duration(self.traps * self.trap_ns),
            units::duration(self.target_cpu_ns),
            units::duration(self.probed_ns),
            units::duration(self.trap_ns),
        )
    }
}
