//! Functions by self and total share, with what chance may have added.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::ask::top::{By, Entry, count, table};
use crate::brief::own;
use crate::escape::terminal;
use crate::model::Profile;
use crate::recording::Recording;
use crate::shares::Shares;
use crate::statistics::{is_enough, widest_margin};
use crate::style::Style;
use crate::text::{columns, cut, cut_name, percent, say_of, write_lines};
use crate::units;

/// Rows for functions of the program that have nothing themselves, where others have less than a hundredth.
const CALLERS: usize = 5;
const LARGE: f64 = 0.01;

/// Words above the table.
#[derive(Clone, Copy, Default)]
pub struct Words<'a> {
    /// Values in the plural.
    pub what: &'a str,
    /// Said in the same sentence, before the answer.
    pub before: Option<&'a str>,
    /// Lines below the answer.
    pub below: &'a [String],
}

/// Writes which function has the most, of what; then the functions with the largest self share, and those of the program with the
/// largest total, then what is left out. `width`: columns of the terminal; `is_sampled`: values come from sampling, and shares
/// have a 95 % interval; else they are exact and shown themselves.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    rows: usize,
    width: usize,
    is_sampled: bool,
    words: Words<'_>,
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
        write_lines(answer(profile, first, &shares, words, width), out)?;
    }
    write_lines(words.below, out)?;
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

/// The function with most in a sentence; of an event that happens in one place, its caller.
fn answer(
    profile: &Profile,
    first: &Entry,
    shares: &Shares<'_>,
    Words { what, before, .. }: Words<'_>,
    width: usize,
) -> Vec<String> {
    let caller = caller(profile).filter(|_| before.is_none() && first.own == shares.value);
    let is_caller = caller.is_some();
    let first = caller.as_ref().unwrap_or(first);
    let said = shares.said(first.own, first.own_count, what);
    let name = terminal(&first.name);
    match before {
        Some(before) => most_in(before, &name, &said, width),
        None if is_caller => say_of("most from ", &name, &format!(": {said}"), width),
        None => say_of("", &name, &format!(" has the most: {said}"), width),
    }
}

/// Words that go before, and the function with most; in a line of its own where it would be cut.
fn most_in(before: &str, name: &str, said: &str, width: usize) -> Vec<String> {
    let rest = format!(": {said}");
    let both = format!("{before}, most in ");
    if columns(&both) + columns(name) + columns(&rest) <= width {
        return vec![format!("{both}{name}{rest}")];
    }
    let mut lines = vec![format!("{before};")];
    lines.extend(say_of("  most in ", name, &rest, width));
    lines
}

/// The program's function that leads to most of an event which happens in one place of the kernel or of a library.
fn caller(profile: &Profile) -> Option<Entry> {
    let mut callers: HashMap<&str, (u64, u64)> = HashMap::new();
    for sample in &profile.samples {
        let Some(own) = own(&sample.user).last().map(|at| &sample.user[*at]) else {
            continue;
        };
        let (value, samples) = callers.entry(&own.name).or_default();
        *value = value.saturating_add(sample.total());
        *samples = samples.saturating_add(sample.count);
    }
    let most = callers
        .into_iter()
        .max_by_key(|(name, sums)| (*sums, *name));
    most.map(|(name, (own, own_count))| Entry {
        name: name.to_owned(),
        own,
        own_count,
        ..Entry::default()
    })
}

/// Names of the program's own functions; what is between them, and how threads start, has no time of its own to tell.
fn own_functions(profile: &Profile) -> HashSet<&str> {
    let samples = profile.samples.iter().map(|sample| &sample.user);
    let names = samples.flat_map(|user| own(user).into_iter().map(|at| &*user[at].name));
    names.collect()
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
    let name = cut_name(&name, room.saturating_sub(columns(&module) + 2));
    format!("{name}  {module}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, FrameKind};
    use crate::model::{Sample, Task, ValueType};

    fn sample(program: [&str; 2], count: u64) -> Sample {
        let frame = |name: &str, kind| Frame {
            name: name.into(),
            kind,
            inlined: false,
            module: None,
            address: 1,
            line: None,
        };
        Sample {
            task: Task::new("app", 1, 1),
            user: program.map(|name| frame(name, FrameKind::User)).into(),
            kernel: [frame("perf_syscall_enter", FrameKind::Kernel)].into(),
            count,
            values: vec![count],
            ..Sample::default()
        }
    }

    /// The first line for an event.
    fn said(samples: Vec<Sample>) -> String {
        let profile = Profile {
            values: vec![ValueType::new("events", "count")],
            samples,
            ..Profile::default()
        };
        let mut out = Vec::new();
        let words = Words {
            what: "calls of read",
            ..Words::default()
        };
        write(&profile, 9, 80, true, words, &mut out).expect("a vector");
        let text = String::from_utf8(out).expect("text");
        text.lines().next().expect("a line").to_owned()
    }

    #[test]
    fn events_of_one_place_are_their_callers() {
        let samples = vec![
            sample(["main", "load"], 60),
            sample(["main", "save"], 30),
            sample(["main", "load"], 10),
        ];
        assert_eq!(
            said(samples.clone()),
            "most from load: 70.0% of 100 calls of read"
        );
        let mut other = sample(["main", "save"], 400);
        other.kernel = [].into();
        let samples = [samples, vec![other]].concat();
        assert_eq!(
            said(samples),
            "save has the most: 80.0% of 500 calls of read"
        );
        let mut hundreds = sample(["main", "load"], 7);
        hundreds.values = vec![700];
        assert_eq!(
            said(vec![hundreds]),
            "most from load: 100.0% of 7 samples, for 700 calls of read"
        );
    }
}
