//! Changes between two profiles in words: the answer in a sentence, a table, then what was compared and what is left out.

use std::io::{self, Write};

use super::diff::{Diff, Mover};
use super::scale::Scale;
use super::{Judged, Verdict};
use crate::escape::terminal;
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{cut, cut_to_fit, sentence, write_lines};
use crate::tree::Side;
use crate::units;

/// Functions that are named in a list of one line or few.
const NAMED: usize = 10;
/// Part of all from which on a change counts that chance cannot be told from.
const LEAST: f64 = 0.001;

/// Layout of the text.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Functions in each list.
    pub rows: usize,
    /// Columns.
    pub width: usize,
    /// Emphasis.
    pub style: Style,
    /// Changes within chance too.
    pub all: bool,
}

/// Direction of a change that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Diff {
    /// Direction of a change, if it is one: beyond chance, or more than a trifle where chance cannot be told.
    fn direction(&self, judged: &Judged) -> Option<Direction> {
        match judged.verdict {
            Verdict::Grew => Some(Direction::Up),
            Verdict::Shrank => Some(Direction::Down),
            Verdict::Unclear => None,
            Verdict::Unjudged => {
                let relative = self.scale.relative(judged, &self.whole);
                let direction = match relative > 0.0 {
                    true => Direction::Up,
                    false => Direction::Down,
                };
                (relative.abs() > LEAST).then_some(direction)
            }
        }
    }

    /// The change that a function's row is about: its own where that is one, else that of all that it calls.
    fn moved(&self, mover: &Mover) -> Option<Direction> {
        let own = self.direction(&mover.own_judged);
        own.or_else(|| self.direction(&mover.judged))
    }

    /// Number of functions that went this way.
    fn moving(&self, direction: Direction) -> u64 {
        let movers = self.functions.iter().map(|mover| self.moved(mover));
        movers.filter(|moved| *moved == Some(direction)).count() as u64
    }

    /// The function that went this way most, by itself where one did; functions are in the order of their own changes.
    fn most(&self, direction: Direction) -> Option<Most<'_>> {
        let is_it = |judged: &Judged| self.direction(judged) == Some(direction);
        let own = self.functions.iter().find(|mover| is_it(&mover.own_judged));
        if let Some(mover) = own {
            return Some(Most {
                mover,
                is_own: true,
            });
        }
        let movers = self.functions.iter().filter(|mover| is_it(&mover.judged));
        let change = |mover: &&Mover| mover.judged.change().abs();
        let most = movers.max_by(|a, b| change(a).total_cmp(&change(b)));
        most.map(|mover| Most {
            mover,
            is_own: false,
        })
    }

    /// Name of the function to look at: the one that grew most, else the one that shrank most.
    pub fn first(&self) -> Option<&str> {
        let most = self.most(Direction::Up);
        let most = most.or_else(|| self.most(Direction::Down))?;
        Some(&most.mover.name)
    }

    /// The answer in a line.
    fn answer(&self, unit: &str, width: usize) -> String {
        let said = |before: &str, most: &Most<'_>, verb| {
            let room = width.saturating_sub(before.len());
            format!("{before}{}", most.said(verb, &self.scale, unit, room))
        };
        if let Some(most) = self.most(Direction::Up) {
            return said("", &most, "grew most");
        }
        match self.most(Direction::Down) {
            Some(most) => said("Nothing grew; ", &most, "shrank most"),
            None => match self.whole.each_ref().map(|side| side.total) {
                [0, _] => "Nothing can be compared: BASE is empty.".into(),
                [_, 0] => "Nothing can be compared: NEW is empty.".into(),
                _ => "No function changed by more than chance does (99 %).".into(),
            },
        }
    }
}

/// The function that moved most.
struct Most<'a> {
    mover: &'a Mover,
    /// Its own change is the one; else that of it with all that it calls.
    is_own: bool,
}

impl Most<'_> {
    /// Its change, by how much and of what.
    fn said(&self, verb: &str, scale: &Scale, unit: &str, width: usize) -> String {
        let (judged, by) = match self.is_own {
            true => (&self.mover.own_judged, " by itself"),
            false => (&self.mover.judged, ", with its callees"),
        };
        let [base, new] = judged.levels.map(|level| scale.cell(level));
        let (of, change) = (scale.of(unit), scale.change(judged.change()));
        let rest = format!(" {verb}{by}: {base} -> {new}{of} ({change})");
        cut_to_fit(&terminal(&self.mover.name), &rest, width)
    }
}

/// Writes the answer, what grew and shrank beyond chance, and what was compared.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    diff: &Diff,
    units: [&str; 2],
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", diff.answer(units[1], options.width))?;
    let is_shown = |mover: &&Mover| options.all || diff.moved(mover).is_some();
    let shown: Vec<&Mover> = diff.functions.iter().filter(is_shown).collect();
    if !shown.is_empty() {
        writeln!(out)?;
        table(&shown, &diff.scale, options).write(options.width, options.style, out)?;
        if shown.len() > options.rows {
            writeln!(out, "… {} more", shown.len() - options.rows)?;
        }
    }
    writeln!(out)?;
    one_sided(diff, 0, "only in BASE", options, out)?;
    one_sided(diff, 1, "only in NEW", options, out)?;
    if !diff.inlining.is_empty() {
        let names = diff.inlining.iter();
        let names = names.map(|name| cut(&terminal(name), options.width / 2));
        list("inlined in one, called in the other", names, options, out)?;
    }
    let lines = sentence(&limits(diff, shown.len()), ";", options.width);
    write_lines(lines, out)?;
    writeln!(out, "{}", diff.scale.sentence(&diff.whole, units))
}

/// Numbers of functions, and what cannot be said of them.
fn limits(diff: &Diff, shown: usize) -> Vec<String> {
    let [grew, shrank] = [Direction::Up, Direction::Down].map(|way| diff.moving(way));
    let quiet = diff.functions.len() as u64 - grew - shrank;
    let has_moved = grew + shrank > 0;
    let mut parts = Vec::new();
    if has_moved {
        parts.push(format!("{} grew", units::counted(grew, "functions")));
        parts.push(format!("{} shrank", units::count(shrank)));
    }
    let is_unknown = |side: &Side| side.count == 0 && side.total > 0;
    let is_unknown = diff.whole.iter().any(is_unknown);
    if quiet > 0 {
        let what = if is_unknown {
            "unchanged"
        } else {
            "within chance"
        };
        let how = if diff.functions.len() > shown {
            " (--all lists them)"
        } else {
            ""
        };
        let whose = match has_moved {
            true => units::count(quiet),
            false => units::counted(quiet, "functions"),
        };
        parts.push(format!("{whose} {what}{how}"));
    }
    if is_unknown {
        let told = "the number of samples is not known, so chance cannot be told apart";
        parts.push(told.into());
    }
    parts
}

fn table<'a>(shown: &[&'a Mover], scale: &Scale, options: &TableOptions) -> Table<'a> {
    let columns = |title| {
        [
            Column::right(title, 8).gap(2),
            Column::right("BASE", 7),
            Column::right("NEW", 7),
        ]
    };
    let mut all = [columns("SELF"), columns("TOTAL")].concat();
    all.push(Column::left("FUNCTION", 0));
    let mut table = Table::new(all);
    for mover in shown.iter().take(options.rows) {
        let own = cells(&mover.own_judged, scale);
        let total = cells(&mover.judged, scale);
        let word = match strongest(mover).verdict {
            Verdict::Grew => "grew",
            Verdict::Shrank => "shrank",
            Verdict::Unclear => "(chance)",
            Verdict::Unjudged => "(unjudged)",
        };
        let name = &mover.name;
        table.fitted([own, total].concat(), move |room| {
            let room = room.saturating_sub(word.len() + 1).max(12);
            format!("{} {word}", cut(&terminal(name), room))
        });
    }
    table
}

/// The judgement that the word is about: of the function alone where that is clear.
fn strongest(mover: &Mover) -> Judged {
    match mover.own_judged.verdict {
        Verdict::Grew | Verdict::Shrank => mover.own_judged,
        _ => mover.judged,
    }
}

fn cells(judged: &Judged, scale: &Scale) -> [String; 3] {
    let [base, new] = judged.levels.map(|level| scale.cell(level));
    [scale.change(judged.change()), base, new]
}

fn one_sided(
    diff: &Diff,
    side: usize,
    words: &str,
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let is_there = |mover: &&Mover| mover.total[1 - side].total == 0 && mover.total[side].total > 0;
    let mut movers: Vec<&Mover> = diff.functions.iter().filter(is_there).collect();
    movers.sort_by(|a, b| b.judged.levels[side].total_cmp(&a.judged.levels[side]));
    if movers.is_empty() {
        return Ok(());
    }
    let named = movers.iter().map(|mover| {
        let level = diff.scale.cell(mover.judged.levels[side]);
        format!("{} {level}", cut(&terminal(&mover.name), options.width / 2))
    });
    list(words, named, options, out)
}

/// Names in a sentence, of many the first.
fn list(
    words: &str,
    names: impl ExactSizeIterator<Item = String>,
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = options.rows.min(NAMED);
    let more = names.len().saturating_sub(shown);
    let mut parts: Vec<String> = names.take(shown).collect();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    if let Some(first) = parts.first_mut() {
        *first = format!("{words}: {first}");
    }
    write_lines(sentence(&parts, ",", options.width), out)
}
