//! Functions by self and total share, with what chance may have added.

use std::io::{self, Write};

use crate::ask::top::{By, Entry, count, table};
use crate::escape::terminal;
use crate::model::Profile;
use crate::recording::Recording;
use crate::shares::Shares;
use crate::statistics::{is_enough, widest_margin};
use crate::style::Style;
use crate::text::{cut, percent};
use crate::units;

/// Writes the functions with the largest self share, then what is left out. `width`: columns of the terminal; `is_sampled`: values
/// come from sampling, and shares have a 95 % interval; else they are exact and shown themselves.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    rows: usize,
    width: usize,
    is_sampled: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let recording = Recording::of_profile(profile);
    let found = count(&recording, &By::Function);
    if is_sampled && !is_enough(found.count) {
        warn(found.count, out)?;
    }
    let shares = Shares {
        is_sampled,
        unit: recording.unit(),
        value: found.value,
        samples: found.count,
    };
    let shown = found.entries.iter().take(rows);
    table(shown, &By::Function, &shares, name).write(width, Style::Plain, out)?;
    let rest = found.entries.get(rows..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest
            .iter()
            .fold(0, |sum, entry| entry.own.saturating_add(sum));
        let n = units::count(rest.len() as u64);
        let plural = if rest.len() == 1 { "" } else { "s" };
        let own = percent(own, found.value);
        writeln!(out, "… {n} more function{plural}: {own} self")?;
    }
    Ok(())
}

fn warn(n: u64, out: &mut impl Write) -> io::Result<()> {
    let plural = if n == 1 { "" } else { "s" };
    let margin = 100.0 * widest_margin(n);
    writeln!(
        out,
        "Only {n} sample{plural}: shares may be off by {margin:.0} percentage points."
    )?;
    writeln!(out, "Trace longer or raise the rate to trust them.\n")
}

/// The function, cut so that its module fits behind it.
fn name(entry: &Entry, room: usize) -> String {
    let name = terminal(&entry.name);
    // The names of unknown functions begin with their module.
    if name.starts_with(&entry.place) {
        return cut(&name, room);
    }
    let module = cut(&terminal(&entry.place), room / 2);
    let name = cut(&name, room.saturating_sub(module.chars().count() + 2));
    format!("{name}  {module}")
}
