//! Who calls a function, and what it calls.

use std::io::{self, Write};

use regex_lite::Regex;

use crate::escape::terminal;
use crate::recording::{FrameKey, Map, NameId, Recording, Row};
use crate::shares::{Shares, counted};
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{cut, percent, say_of, write_lines};
use crate::units;

/// A function with its neighbours; values by name, largest first.
#[derive(Clone, Debug, Default)]
pub struct Peeked {
    /// The function.
    pub name: String,
    /// Value with it at the leaf.
    pub own: u64,
    /// Value with it anywhere, once per stack.
    pub total: u64,
    /// Direct callers. `[root]`: nobody is known.
    pub callers: Vec<(String, u64)>,
    /// Direct callees; the function itself where it recurses.
    pub callees: Vec<(String, u64)>,
}

/// Where nobody calls.
const ROOT: &str = "[root]";

#[derive(Default)]
struct Sums {
    own: u64,
    total: u64,
    callers: Map<NameId, u64>,
    callees: Map<NameId, u64>,
}

/// Every function whose name matches, largest total first.
///
/// The values of callers and callees are of stacks that have the call, each stack once.
pub fn peek(recording: &Recording, pattern: &Regex) -> Vec<Peeked> {
    let frames = recording.frames();
    let matches = |frame: &FrameKey| pattern.is_match(recording.text(frame.name));
    let matches: Vec<bool> = frames.iter().map(matches).collect();
    let mut found: Map<NameId, Sums> = Map::default();
    for row in recording.rows() {
        add_row(recording, &row, &matches, &mut found);
    }
    let name = |name: NameId| match name {
        NameId::NONE => ROOT.to_owned(),
        name => recording.text(name).to_owned(),
    };
    let sorted = |sums: Map<NameId, u64>| {
        let list = sums.into_iter().map(|(id, value)| (name(id), value));
        let mut list: Vec<(String, u64)> = list.collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        list
    };
    let peeked = found.into_iter().map(|(id, sums)| Peeked {
        name: name(id),
        own: sums.own,
        total: sums.total,
        callers: sorted(sums.callers),
        callees: sorted(sums.callees),
    });
    let mut peeked: Vec<Peeked> = peeked.collect();
    peeked.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    peeked
}

fn add_row(recording: &Recording, row: &Row<'_>, matches: &[bool], found: &mut Map<NameId, Sums>) {
    let weight = recording.weight(row);
    let name = |frame: u32| recording.frames()[frame as usize].name;
    let stack: Vec<u32> = recording.frame_ids(row.key.stack).collect();
    let mut functions = Vec::new();
    let mut calls = Vec::new();
    // Leaf first.
    for (at, frame) in stack.iter().enumerate() {
        if !matches[*frame as usize] {
            continue;
        }
        functions.push(name(*frame));
        match at.checked_sub(1) {
            Some(callee) => calls.push((name(*frame), true, name(stack[callee]))),
            None => add(&mut found.entry(name(*frame)).or_default().own, weight),
        }
        let caller = stack.get(at + 1).map_or(NameId::NONE, |frame| name(*frame));
        calls.push((name(*frame), false, caller));
    }
    functions.sort_unstable();
    functions.dedup();
    calls.sort_unstable();
    calls.dedup();
    for function in functions {
        add(&mut found.entry(function).or_default().total, weight);
    }
    for (function, is_callee, other) in calls {
        let sums = found.entry(function).or_default();
        let side = if is_callee {
            &mut sums.callees
        } else {
            &mut sums.callers
        };
        add(side.entry(other).or_default(), weight);
    }
}

fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// The part that is shown.
#[derive(Clone, Debug)]
pub struct PeekOptions {
    /// Functions.
    pub rows: usize,
    /// Columns of the terminal.
    pub width: usize,
    /// Emphasis.
    pub style: Style,
}

/// Writes what the first function has; then callers above, callees below, as in pprof.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    recording: &Recording,
    peeked: &[Peeked],
    options: &PeekOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    write_lines(answer(recording, peeked, options.width), out)?;
    let shown = &peeked[..peeked.len().min(options.rows)];
    write_tables(recording, shown, options, out)?;
    match peeked.len() - shown.len() {
        0 => Ok(()),
        more => {
            let more = units::counted(more as u64, "more functions");
            writeln!(out, "… {more} with matching names; -n shows more")
        }
    }
}

/// The first function in a sentence.
fn answer(recording: &Recording, peeked: &[Peeked], width: usize) -> Vec<String> {
    let Some(first) = peeked.first() else {
        return Vec::new();
    };
    let value = recording.total();
    let shares = Shares {
        is_sampled: false,
        unit: recording.unit(),
        value,
        samples: 0,
    };
    let said = shares.said(first.total, 0, &counted(recording));
    let rest = match peeked.len() {
        1 => format!(" has {said}, {} by itself", percent(first.own, value)),
        n => {
            let functions = units::counted(n as u64, "functions");
            format!(" has the most of {functions}: {said}")
        }
    };
    say_of("", &terminal(&first.name), &rest, width)
}

fn write_tables(
    recording: &Recording,
    peeked: &[Peeked],
    options: &PeekOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let (all, style) = (recording.total(), options.style);
    let cells = |value| [units::value(value, recording.unit()), percent(value, all)];
    let mut table = Table::new([
        Column::right("", 10),
        Column::right("SELF", 6),
        Column::right("", 10).gap(2),
        Column::right("TOTAL", 6),
        Column::left("CALLERS, FUNCTION, CALLEES", 0),
    ]);
    for function in peeked {
        let mut row = |own: Option<u64>, total, name, indent: usize| {
            let own = own.map(cells).unwrap_or_default();
            table.fitted([own, cells(total)].concat(), move |room| {
                let room = room.saturating_sub(indent).max(20);
                format!("{:indent$}{}", "", cut(&terminal(name), room))
            });
        };
        for (caller, value) in &function.callers {
            row(None, *value, caller, 2);
        }
        row(Some(function.own), function.total, &function.name, 0);
        for (callee, value) in &function.callees {
            row(None, *value, callee, 4);
        }
    }
    let (title, rows) = table.lines(options.width);
    let mut rows = rows.into_iter();
    for (index, function) in peeked.iter().enumerate() {
        writeln!(out)?;
        if index == 0 {
            writeln!(out, "{}", style.bold(&title))?;
        }
        for caller in rows.by_ref().take(function.callers.len()) {
            writeln!(out, "{caller}")?;
        }
        for line in rows.by_ref().take(1) {
            writeln!(out, "{}", style.bold(line))?;
        }
        for callee in rows.by_ref().take(function.callees.len()) {
            writeln!(out, "{callee}")?;
        }
    }
    Ok(())
}
