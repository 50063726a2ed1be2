//! Functions by self and total share, with what chance may have added.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::ask::top::{By, Entry, count, table};
use crate::brief::is_own;
use crate::escape::terminal;
use crate::model::Profile;
use crate::recording::Recording;
use crate::shares::Shares;
use crate::statistics::{is_enough, widest_margin};
use crate::style::Style;
use crate::text::{columns, cut, cut_to_fit, percent};
use crate::units;

/// Rows for functions of the program that have nothing themselves, where others have less than a hundredth.
const CALLERS: usize = 5;
const LARGE: f64 = 0.01;
/// Columns of a name below which it tells nothing.
const LEAST_OF_A_NAME: usize = 24;

/// Writes which function has the most, of what; then the functions with the largest self share, and those of the program with the
/// largest total, then what is left out. `width`: columns of the terminal; `is_sampled`: values come from sampling, and shares
/// have a 95 % interval; else they are exact and shown themselves. `before`: what is said in the same sentence, before the answer.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    rows: usize,
    width: usize,
    is_sampled: bool,
    before: Option<&str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let recording = Recording::of_profile(profile);
    let found = count(&recording, &By::Function);
    let shares = Shares {
        is_sampled,
        unit: recording.unit(),
        value: found.value,
        samples: found.count,
    };
    if let Some(first) = found.entries.first() {
        let what = profile.values.first().map_or("", |value| value.name);
        let said = shares.said(first.own, first.own_count, what);
        let (before, rest) = match before {
            Some(before) => (format!("{before}, most in "), format!(": {said}")),
            None => (String::new(), format!(" has the most: {said}")),
        };
        let room = width.saturating_sub(columns(&before));
        let name = terminal(&first.name);
        if room.saturating_sub(columns(&rest)) < columns(&name).min(LEAST_OF_A_NAME) {
            // A fragment of a name answers nothing.
            writeln!(out, "{before}{}", cut(&name, room))?;
            writeln!(out, "  {}", rest.trim_start_matches(": "))?;
        } else {
            writeln!(out, "{before}{}", cut_to_fit(&name, &rest, room))?;
        }
    }
    if is_sampled && !is_enough(found.count) {
        warn(found.count, out)?;
    }
    writeln!(out)?;
    let callers = own_functions(profile);
    let says = |entry: &&Entry| entry.own > 0 || callers.contains(&*entry.name);
    let (shown, mut rest): (Vec<&Entry>, Vec<&Entry>) = found.entries.iter().partition(says);
    let (mut shown, callers): (Vec<&Entry>, Vec<&Entry>) =
        shown.into_iter().partition(|entry| entry.own > 0);
    // Entries are sorted by what they have themselves, then by their totals.
    let is_large = |entry: &&&Entry| entry.own as f64 >= LARGE * found.value as f64;
    let large = shown.iter().take_while(is_large).count();
    let room = rows.saturating_sub(callers.len().min(CALLERS)).max(large);
    rest.extend(shown.split_off(room.min(rows).min(shown.len())));
    let room = rows - shown.len();
    rest.extend(callers.iter().skip(room));
    shown.extend(callers.into_iter().take(room));
    table(shown.into_iter(), &By::Function, &shares, name).write(width, Style::Plain, out)?;
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

/// Names of the program's own functions; what is between them, and how threads start, has no time of its own to tell.
fn own_functions(profile: &Profile) -> HashSet<&str> {
    let frames = profile.samples.iter().flat_map(|sample| sample.user.iter());
    frames
        .filter(|frame| is_own(frame))
        .map(|frame| &*frame.name)
        .collect()
}

fn warn(n: u64, out: &mut impl Write) -> io::Result<()> {
    let plural = if n == 1 { "" } else { "s" };
    let margin = 100.0 * widest_margin(n);
    writeln!(
        out,
        "Only {n} sample{plural}: shares may be off by {margin:.0} percentage points."
    )?;
    writeln!(out, "Trace longer or raise the rate to trust them.")
}

/// The function, cut so that its module fits behind it.
fn name(entry: &Entry, room: usize) -> String {
    let name = terminal(&entry.name);
    // The names of unknown functions begin with their module.
    if name.starts_with(&entry.place) {
        return cut(&name, room);
    }
    let module = cut(&terminal(&entry.place), room / 2);
    let name = cut(&name, room.saturating_sub(columns(&module) + 2));
    format!("{name}  {module}")
}
