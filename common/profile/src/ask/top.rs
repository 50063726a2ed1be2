//! What weighs most: functions, lines, modules, commands, threads or labels.

use std::cmp::Reverse;
use std::io::{self, Write};

use crate::escape::terminal;
use crate::recording::{FrameKey, Map, NameId, Recording, Row};
use crate::shares::{Shares, counted};
use crate::statistics::{is_enough, widest_margin};
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{columns, cut, cut_name, cut_start, percent, say_of, write_lines};
use crate::units;

/// Samples without a frame, and frames of no module, by what is counted.
const NO_STACK: &str = "[no stack]";
const NO_MODULE: &str = "[no module known]";

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Functions, those of one name in two modules apart.
    Function,
    /// Source lines.
    Line,
    /// Programs and libraries.
    Module,
    /// Threads of one name.
    Comm,
    /// Threads.
    Thread,
    /// Values of a label; `reason` is one.
    Label(String),
}

/// One of the things counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What it is called, not escaped.
    pub name: String,
    /// More about it, e.g. its module.
    pub place: String,
    /// Value with it at the leaf.
    pub own: u64,
    /// Value with it anywhere in the stack, once per stack.
    pub total: u64,
    /// Samples behind `own`.
    pub own_count: u64,
    /// Samples behind `total`.
    pub total_count: u64,
}

/// All of them, the largest own value first.
#[derive(Clone, Debug, Default)]
pub struct Top {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Sum over all samples.
    pub value: u64,
    /// Number of all samples.
    pub count: u64,
}

/// Counts, and leaves out what has no value.
pub fn top(recording: &Recording, by: &By) -> Top {
    let mut found = count(recording, by);
    found.entries.retain(|entry| entry.total > 0);
    found
}

/// Counts.
pub(crate) fn count(recording: &Recording, by: &By) -> Top {
    let mut groups = Groups::new(recording, by);
    let mut found = Top::default();
    for row in recording.rows() {
        let weight = recording.weight(&row);
        found.value = found.value.saturating_add(weight);
        found.count = found.count.saturating_add(row.count);
        groups.add(&row, weight);
    }
    found.entries = groups.entries;
    // Functions of wakers alone were in no stack.
    let was_met = |entry: &Entry| entry.total > 0 || entry.total_count > 0;
    found.entries.retain(was_met);
    found.entries.sort_by(|a, b| {
        let by_weight = (b.own, b.total).cmp(&(a.own, a.total));
        by_weight.then_with(|| (&a.name, &a.place).cmp(&(&b.name, &b.place)))
    });
    found
}

struct Groups<'a> {
    recording: &'a Recording,
    by: &'a By,
    entries: Vec<Entry>,
    ids: Map<(String, String), usize>,
    /// Entry of each frame, for what frames are grouped by.
    of_frame: Vec<usize>,
    /// Number of the last row that each entry was in.
    seen: Vec<usize>,
    rows: usize,
}

impl<'a> Groups<'a> {
    fn new(recording: &'a Recording, by: &'a By) -> Self {
        let mut groups = Self {
            recording,
            by,
            entries: Vec::new(),
            ids: Map::default(),
            of_frame: Vec::new(),
            seen: Vec::new(),
            rows: 0,
        };
        if matches!(by, By::Function | By::Line | By::Module) {
            for frame in recording.frames() {
                let (name, place) = groups.describe(frame);
                let id = groups.entry(name, place);
                groups.of_frame.push(id);
            }
        }
        groups
    }

    fn entry(&mut self, name: String, place: String) -> usize {
        let next = self.entries.len();
        let id = *self
            .ids
            .entry((name.clone(), place.clone()))
            .or_insert(next);
        if id == next {
            self.entries.push(Entry {
                name,
                place,
                ..Entry::default()
            });
            self.seen.push(0);
        }
        id
    }

    fn describe(&self, frame: &FrameKey) -> (String, String) {
        let text = |name: NameId| self.recording.text(name);
        let module = text(frame.module);
        let base = module.rsplit('/').next().unwrap_or_default().to_owned();
        match self.by {
            By::Line if frame.line > 0 => (
                format!("{}:{}", text(frame.file), frame.line),
                text(frame.name).to_owned(),
            ),
            By::Module if module.is_empty() => (NO_MODULE.into(), String::new()),
            By::Module => (module.to_owned(), String::new()),
            _ => (text(frame.name).to_owned(), base),
        }
    }

    fn add(&mut self, row: &Row<'_>, weight: u64) {
        self.rows += 1;
        let recording = self.recording;
        let task = row.key.task;
        let comm = || recording.text(task.comm).to_owned();
        let whole = match self.by {
            By::Comm => Some((comm(), String::new())),
            By::Thread => Some((comm(), format!("pid {}, tid {}", task.pid, task.tid))),
            By::Label(label) => Some((value_of(recording, row, label), String::new())),
            _ => None,
        };
        if let Some((name, place)) = whole {
            let entry = self.entry(name, place);
            self.count(entry, true, row.count, weight);
            return;
        }
        let mut is_leaf = true;
        for frame in recording.frame_ids(row.key.stack) {
            self.count(self.of_frame[frame as usize], is_leaf, row.count, weight);
            is_leaf = false;
        }
        if is_leaf {
            let entry = self.entry(NO_STACK.into(), String::new());
            self.count(entry, true, row.count, weight);
        }
    }

    fn count(&mut self, id: usize, is_leaf: bool, count: u64, weight: u64) {
        let entry = &mut self.entries[id];
        if self.seen[id] != self.rows {
            self.seen[id] = self.rows;
            entry.total = entry.total.saturating_add(weight);
            entry.total_count = entry.total_count.saturating_add(count);
        }
        if is_leaf {
            entry.own = entry.own.saturating_add(weight);
            entry.own_count = entry.own_count.saturating_add(count);
        }
    }
}

/// Labels that samples may have in every format.
const LABELS: [&str; 6] = ["comm", "pid", "tid", "reason", "idle", "waker"];

/// Whether a label is one of those that every sample may have, or some sample of this profile has it.
pub fn knows_label(recording: &Recording, label: &str) -> bool {
    let is_own = |row: &Row<'_>| {
        let own = recording.labels(row.key.labels).iter();
        own.into_iter()
            .any(|(name, _)| recording.text(*name) == label)
    };
    LABELS.contains(&label) || recording.rows().any(|row| is_own(&row))
}

/// The value of a sample's label, those that every sample has included.
pub(crate) fn value_of(recording: &Recording, row: &Row<'_>, label: &str) -> String {
    let key = row.key;
    let labels = recording.labels(key.labels);
    let own = labels
        .iter()
        .find(|(name, _)| recording.text(*name) == label);
    let text = match (label, own) {
        (_, Some((_, text))) => recording.text(*text).to_owned(),
        ("comm", _) => recording.text(key.task.comm).to_owned(),
        ("pid", _) if key.task.pid > 0 => key.task.pid.to_string(),
        ("tid", _) if key.task.tid > 0 => key.task.tid.to_string(),
        ("reason", _) => recording.text(key.reason).to_owned(),
        ("idle", _) => key.idle.to_string(),
        ("waker", _) => match recording.waker(key.waker).map(|waker| waker.task) {
            Some(Some(task)) => recording.text(task.comm).to_owned(),
            Some(None) => "[irq]".into(),
            None => String::new(),
        },
        _ => String::new(),
    };
    if text.is_empty() {
        format!("[no {label}]")
    } else {
        text
    }
}

/// How the table looks.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Rows; what is left out is summed up.
    pub rows: usize,
    /// Columns of the terminal.
    pub width: usize,
    /// Emphasis.
    pub style: Style,
    /// Heaviest total first, instead of self.
    pub by_total: bool,
}

fn ordered(recording: &Recording, by: &By, by_total: bool) -> Top {
    let mut found = top(recording, by);
    if by_total {
        found
            .entries
            .sort_by_key(|entry| Reverse((entry.total, entry.own)));
    }
    found
}

/// The entry with most, of all that was on a stack.
pub fn first(recording: &Recording, by: &By, by_total: bool) -> Option<Entry> {
    let entries = ordered(recording, by, by_total).entries;
    entries.into_iter().find(|entry| entry.name != NO_STACK)
}

/// The function that has the most, of those in the module of an entry.
pub fn first_in(recording: &Recording, module: &Entry, by_total: bool) -> Option<Entry> {
    let file = module.name.rsplit('/').next().unwrap_or_default();
    let file = if file == NO_MODULE { "" } else { file };
    let entries = ordered(recording, &By::Function, by_total).entries;
    let is_there = |entry: &Entry| entry.name != NO_STACK && entry.place == file;
    entries.into_iter().find(is_there)
}

/// Writes what has the most, then a table. Samples have shares with 95 % intervals; times and bytes are exact, and shown themselves.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    recording: &Recording,
    by: &By,
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let found = ordered(recording, by, options.by_total);
    let shares = Shares {
        is_sampled: matches!(recording.unit(), "count" | "") && recording.header.has_counts,
        unit: recording.unit(),
        value: found.value,
        samples: found.count,
    };
    let Some(first) = found.entries.first() else {
        return writeln!(out, "Nothing is in it.");
    };
    let lines = answer(first, by, options, &shares, &counted(recording));
    write_lines(lines, out)?;
    if shares.is_sampled && found.count > 0 && !is_enough(found.count) {
        let margin = 100.0 * widest_margin(found.count);
        let samples = units::counted(found.count, "samples");
        writeln!(
            out,
            "Only {samples}: shares may be off by {margin:.0} percentage points."
        )?;
    }
    writeln!(out)?;
    let shown = found.entries.iter().take(options.rows);
    let (is_line, style) = (matches!(by, By::Line), options.style);
    let fit = |entry: &Entry, room| fit(entry, is_line, room, style);
    table(shown, by, &shares, fit).write(options.width, style, out)?;
    let rest = found.entries.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest
            .iter()
            .fold(0, |sum: u64, entry| sum.saturating_add(entry.own));
        let (n, own) = (units::count(rest.len() as u64), percent(own, found.value));
        writeln!(out, "… {n} more: {own} self")?;
    }
    Ok(())
}

/// The first entry in a sentence; `of`: what is counted, in the plural.
fn answer(
    first: &Entry,
    by: &By,
    options: &TableOptions,
    shares: &Shares<'_>,
    of: &str,
) -> Vec<String> {
    let own = shares.said(first.own, first.own_count, of);
    let total = shares.said(first.total, first.total_count, of);
    let (said, how) = match by {
        By::Comm | By::Thread | By::Label(_) => (own, ""),
        _ if options.by_total => (total, " with what it calls"),
        _ => (own, " by itself"),
    };
    let rest = format!(" has the most{how}: {said}");
    say_of("", &terminal(&first.name), &rest, options.width)
}

/// A table whose last column is what `fit` makes of an entry and the columns of the terminal that are left for it.
pub(crate) fn table<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    by: &By,
    shares: &Shares<'_>,
    fit: impl Fn(&Entry, usize) -> String + Copy + 'a,
) -> Table<'a> {
    let title = match by {
        By::Function => "FUNCTION".into(),
        By::Line => "LINE".into(),
        By::Module => "MODULE".into(),
        By::Comm => "COMMAND".into(),
        By::Thread => "THREAD".into(),
        By::Label(label) => terminal(label).to_uppercase(),
    };
    // Every sample has one, so self and total are the same.
    let is_whole = matches!(by, By::Comm | By::Thread | By::Label(_));
    let mut columns = if is_whole {
        shares.columns("SHARE").to_vec()
    } else {
        [shares.columns("SELF"), shares.columns("TOTAL")].concat()
    };
    columns.push(Column::left(title, 0));
    let mut table = Table::new(columns);
    for entry in entries {
        let mut cells = shares.cells(entry.own, entry.own_count).to_vec();
        if !is_whole {
            cells.extend(shares.cells(entry.total, entry.total_count));
        }
        table.fitted(cells, move |room| fit(entry, room.max(20)));
    }
    table
}

/// Name of the counted things, cut so that more about it fits behind it.
fn fit(entry: &Entry, is_line: bool, room: usize, style: Style) -> String {
    let place = cut(&terminal(&entry.place), room / 2);
    let room = room.saturating_sub(columns(&place) + 2);
    let name = terminal(&entry.name);
    // The end of a file's path says more than its beginning.
    let name = if is_line {
        cut_start(&name, room)
    } else {
        cut_name(&name, room)
    };
    if place.is_empty() {
        return name;
    }
    format!("{name}  {}", style.dim(place))
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
