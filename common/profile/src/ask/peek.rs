//! Who calls a function, and what it calls.

use std::io::{self, Write};

use regex::Regex;

use crate::escape::terminal;
use crate::recording::{Map, Recording};
use crate::style::Style;
use crate::text::{cut, percent};
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
    callers: Map<u32, u64>,
    callees: Map<u32, u64>,
}

/// Every function whose name matches, largest total first.
///
/// The values of callers and callees are of stacks that have the call, each stack once.
pub fn peek(recording: &Recording, pattern: &Regex) -> Vec<Peeked> {
    let frames = recording.frames();
    let matches: Vec<bool> = frames
        .iter()
        .map(|frame| pattern.is_match(recording.text(frame.name)))
        .collect();
    let id = |frame: u32| frames[frame as usize].name.index() as u32;
    let mut found: Map<u32, Sums> = Map::default();
    for row in recording.rows() {
        let weight = recording.weight(&row);
        // Leaf first.
        let stack: Vec<u32> = recording.frame_ids(row.key.stack).collect();
        let mut functions = Vec::new();
        let mut calls = Vec::new();
        for (at, frame) in stack
            .iter()
            .enumerate()
            .filter(|(_, frame)| matches[**frame as usize])
        {
            functions.push(id(*frame));
            if at == 0 {
                let own = &mut found.entry(id(*frame)).or_default().own;
                *own = own.saturating_add(weight);
            } else {
                calls.push((id(*frame), true, id(stack[at - 1])));
            }
            calls.push((
                id(*frame),
                false,
                stack.get(at + 1).map_or(0, |caller| id(*caller)),
            ));
        }
        functions.sort_unstable();
        functions.dedup();
        calls.sort_unstable();
        calls.dedup();
        for function in functions {
            let total = &mut found.entry(function).or_default().total;
            *total = total.saturating_add(weight);
        }
        for (function, is_callee, other) in calls {
            let sums = found.entry(function).or_default();
            let side = if is_callee {
                &mut sums.callees
            } else {
                &mut sums.callers
            };
            let sum = side.entry(other).or_default();
            *sum = sum.saturating_add(weight);
        }
    }
    let texts: Map<u32, &str> = frames
        .iter()
        .map(|frame| (frame.name.index() as u32, recording.text(frame.name)))
        .collect();
    let name = |id: u32| {
        texts
            .get(&id)
            .map_or_else(|| ROOT.to_owned(), |text| (*text).to_owned())
    };
    let sorted = |sums: Map<u32, u64>| {
        let mut list: Vec<(String, u64)> = sums
            .into_iter()
            .map(|(id, value)| (name(id), value))
            .collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        list
    };
    let mut peeked: Vec<Peeked> = found
        .into_iter()
        .map(|(id, sums)| Peeked {
            name: name(id),
            own: sums.own,
            total: sums.total,
            callers: sorted(sums.callers),
            callees: sorted(sums.callees),
        })
        .collect();
    peeked.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    peeked
}

/// Writes callers above, callees below, as in pprof.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    recording: &Recording,
    peeked: &[Peeked],
    (width, style): (usize, Style),
    out: &mut impl Write,
) -> io::Result<()> {
    let all = recording.total();
    let cell = |value: u64| {
        format!(
            "{:>10} {:>6}",
            units::value(value, recording.unit()),
            percent(value, all)
        )
    };
    let blank = " ".repeat(17);
    for (index, function) in peeked.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let name = |name: &str, indent: usize| {
            cut(&terminal(name), width.saturating_sub(38 + indent).max(20))
        };
        if index == 0 {
            writeln!(
                out,
                "{}",
                style.bold(format!(
                    "{:>17}  {:>17}  CALLERS, FUNCTION, CALLEES",
                    "SELF", "TOTAL"
                ))
            )?;
        }
        for (caller, value) in &function.callers {
            writeln!(out, "{blank}  {}    {}", cell(*value), name(caller, 2))?;
        }
        let line = format!(
            "{}  {}  {}",
            cell(function.own),
            cell(function.total),
            name(&function.name, 0)
        );
        writeln!(out, "{}", style.bold(line))?;
        for (callee, value) in &function.callees {
            writeln!(out, "{blank}  {}      {}", cell(*value), name(callee, 4))?;
        }
    }
    Ok(())
}
