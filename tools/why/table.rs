//! The table: a row for each line, with what is known of it below.

use std::io::{self, Write};

use hist::Histogram;
use profile::escape::terminal;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, cut};
use profile::units;

use crate::offcputime::THROTTLED;
use crate::why::account::Account;
use crate::why::args::Args;
use crate::why::line::{IDLE, LOST, Line, ON_CPU, RESIDUAL, RUN_QUEUE, UNSEEN, p99_ns};
use crate::why::remarks::remarks;
use crate::why::words::{fit, function, program};

/// Lines that people are shown.
const TOP: usize = 12;
/// Share of busy time from which a line is shown: one in so many.
const LEAST: u64 = 100;
/// Columns before remarks.
const INDENT: usize = 18;

/// All lines, the small ones together.
pub(super) fn table(args: &Args, account: &Account) -> Lines {
    let mut table = Lines::new();
    let least_ns = account.busy_ns() / LEAST;
    let (mut shown, mut more) = (0, Vec::new());
    for line in &account.lines {
        let is_last = line.kind == IDLE || is_remainder(line);
        let has_room = shown < TOP || line.is_unclear;
        let is_shown = is_last || has_room && line.time_ns() > least_ns;
        if !is_shown {
            more.push(line);
            continue;
        }
        if is_last {
            // Those before them are complete.
            table.add_more(account, &std::mem::take(&mut more));
        }
        shown += 1;
        table.add(args, account, line);
    }
    table.add_more(account, &more);
    let all_ns = account.lifetime_ns.cast_signed();
    let no_wait = (0, &Histogram::default());
    let all = cells(account, all_ns, no_wait, "all of the threads' time");
    table.row(all, Vec::new());
    table
}

/// Time that is no wait and no work of anybody's.
pub(super) fn is_remainder(line: &Line) -> bool {
    [UNSEEN, LOST, RESIDUAL].contains(&line.kind)
}

/// `waits`: their number, and how long they took.
pub(super) fn cells(
    account: &Account,
    ns: i64,
    (waits, lengths): (u64, &Histogram),
    words: &str,
) -> [String; 6] {
    let share = 100.0 * ns as f64 / account.lifetime_ns.max(1) as f64;
    // No share is less than nothing by less than is shown.
    let share = (10.0 * share).round() / 10.0 + 0.0;
    let sign = if ns < 0 { "-" } else { "" };
    let (count, mean) = match waits {
        // Waits that were seen are not all that there were.
        _ if account.looked.is_some() => (String::new(), String::new()),
        0 => (String::new(), String::new()),
        n => (units::count(n), units::duration(ns.unsigned_abs() / n)),
    };
    [
        format!("{sign}{}", units::duration(ns.unsigned_abs())),
        format!("{share:.1}%"),
        count,
        mean,
        p99_ns(lengths).map_or(String::new(), units::duration),
        words.to_owned(),
    ]
}

/// Rows of the table with the remarks below each.
pub(super) struct Lines {
    table: Table<'static>,
    remarks: Vec<Vec<String>>,
}

impl Lines {
    fn new() -> Self {
        let table = Table::new([
            Column::right("TIME", 8),
            Column::right("SHARE", 6),
            Column::right("WAITS", 8),
            Column::right("AVG", 7),
            Column::right("P99", 7),
            Column::left("WHERE THE TIME WENT", 0),
        ]);
        Self {
            table,
            remarks: Vec::new(),
        }
    }

    fn row(&mut self, cells: [String; 6], remarks: Vec<String>) {
        let [time, share, waits, mean, p99, words] = cells;
        let cells = [time, share, waits, mean, p99];
        self.table.fitted(cells, move |room| fit(&words, room));
        self.remarks.push(remarks);
    }

    fn add_more(&mut self, account: &Account, lines: &[&Line]) {
        if lines.is_empty() {
            return;
        }
        let ns = lines.iter().map(|line| line.ns).sum();
        let waits = lines.iter().map(|line| line.waits).sum();
        let more = units::counted(lines.len() as u64, "more lines");
        let words = format!("{more} (-j has all)");
        let mut lengths = Histogram::default();
        lines.iter().for_each(|line| lengths.merge(&line.lengths));
        self.row(cells(account, ns, (waits, &lengths), &words), Vec::new());
    }

    fn add(&mut self, args: &Args, account: &Account, line: &Line) {
        let words = words(line) + &whose(account, line);
        let mut remarks = remarks(account, line);
        if args.common.verbose {
            let (kernel, user) = &line.stack;
            let frames = kernel.iter().rev().chain(user.iter().rev());
            remarks.extend(frames.map(|frame| format!("  {}", terminal(&frame.name))));
        }
        let waits = (line.waits, &line.lengths);
        self.row(cells(account, line.ns, waits, &words), remarks);
    }

    pub(super) fn write(self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let (title, rows) = self.table.lines(WIDTH);
        writeln!(out, "{}", style.bold(title))?;
        for (row, remarks) in rows.iter().zip(self.remarks) {
            writeln!(out, "{row}")?;
            for remark in remarks {
                let remark = cut(&remark, WIDTH - INDENT);
                writeln!(out, "{:INDENT$}{remark}", "")?;
            }
        }
        Ok(())
    }
}

/// The process with most of a line, where there are several.
pub(super) fn whose(account: &Account, line: &Line) -> String {
    let is_said = account.programs.len() > 1 && line.is_busy();
    match &line.whose[..] {
        [] => String::new(),
        _ if !is_said => String::new(),
        [(one, _)] => format!(", {}", program(one)),
        [(first, _), others @ ..] => format!(", {} +{}", program(first), others.len()),
    }
}

/// Words for what the time was spent on; of several functions that wait for a lock, the first, and how many others.
pub(super) fn words(line: &Line) -> String {
    let words = words_of(line.kind, line.place.as_deref());
    match line.places.len() {
        others @ 2.. if line.place.is_some() => format!("{words} +{}", others - 1),
        _ => words,
    }
}

/// Words for time of a kind, in a function of the program's.
pub(super) fn words_of(kind: &'static str, place: Option<&str>) -> String {
    let what = match kind {
        ON_CPU => "on CPU",
        RUN_QUEUE => "waiting for a CPU",
        THROTTLED => "out of CPU quota",
        IDLE => "idle: nothing to do",
        UNSEEN => "between switches that were not seen",
        LOST => "waits that were lost",
        RESIDUAL => "not explained",
        reason => reason,
    };
    match place {
        Some(place) => format!("{what:<10} {}", function(place)),
        None => what.to_owned(),
    }
}
