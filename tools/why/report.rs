//! The report: sentences, and the table that they are read off.

use std::io::{self, Write};

use anyhow::{Context, Result};
use profile::escape::terminal;
use profile::folded::{self, FoldedOptions, Idle};
use profile::model::Profile;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, cut};
use profile::units;
use profile::write::Meta;
use session::closing::{self, Closing};
use session::output::Format;
use session::program;

use crate::offcputime::THROTTLED;
use crate::why::account::Account;
use crate::why::args::Args;
use crate::why::chains::Chain;
use crate::why::line::{Blame, Culprit, IDLE, LOST, Line, ON_CPU, RESIDUAL, RUN_QUEUE, UNSEEN};
use crate::why::sentences::{function, program as name_of, sentences, who};
use crate::why::{json, next};

/// Lines that people are shown.
const TOP: usize = 12;
/// Share of busy time from which a line is shown: one in so many.
const LEAST: u64 = 100;
/// Culprits of a line that people are shown, and the share from which.
const TOP_CULPRITS: usize = 3;
const LEAST_BLAME: f64 = 0.05;
/// Columns before remarks.
const INDENT: usize = 18;

/// Writes everything that was asked for. `wall`: all time by stack.
pub(crate) fn report(
    args: &Args,
    account: &Account,
    wall: &Profile,
    closing: &Closing,
) -> Result<()> {
    let report = Report {
        args,
        account,
        wall,
        closing,
        answer: answer(args, account),
    };
    // Files first: whoever reads stdout may have left.
    for file in &args.stacks.output {
        let written = file.write(|mut out| report.write(file.format, &mut out));
        program::unless_closed(written, ())?;
    }
    let mut out = io::stdout().lock();
    let written = report.write_stdout(&mut out).context("write to stdout");
    program::unless_closed(written, ())
}

struct Report<'a> {
    args: &'a Args,
    account: &'a Account,
    wall: &'a Profile,
    closing: &'a Closing,
    /// The sentences, and the command that looks further.
    answer: Vec<String>,
}

impl Report<'_> {
    /// A report for people, unless something else was asked for, or files alone and nobody reads along.
    fn write_stdout(&self, out: &mut impl Write) -> Result<()> {
        let Args {
            stacks,
            common,
            brief,
            ..
        } = self.args;
        let format = match stacks.format(common) {
            _ if *brief => {
                writeln!(out, "{}", json::brief(self.account, &self.answer))?;
                None
            }
            Some(Format::Folded) if !stacks.folded => Some(Format::Human),
            format => format,
        };
        format.map_or(Ok(()), |format| self.write(format, out))?;
        Ok(out.flush()?)
    }

    fn write(&self, format: Format, out: &mut impl Write) -> Result<()> {
        let Self { account, wall, .. } = *self;
        match format {
            Format::Human => {
                let style = Style::from(self.args.common.uses_color());
                self.write_human(style, out)?;
            }
            Format::Folded => {
                let options = FoldedOptions {
                    delimiter: self.args.stacks.delimited,
                    annotate: self.args.stacks.annotate,
                    divisor: 1_000,
                    idle: Idle::Fold,
                    ..FoldedOptions::default()
                };
                folded::write(wall, &options, out)?;
            }
            Format::Json => {
                let mut extra = json::whole(account, self.closing);
                extra.extend(self.meta().to_json());
                profile::json::write(wall, &extra, out)?;
            }
            Format::File(format) => {
                let mut report = Vec::new();
                self.write_human(Style::Plain, &mut report)?;
                let mut meta = self.meta();
                meta.report = String::from_utf8_lossy(&report).into_owned();
                profile::write::write(wall, format, &meta, out)?;
            }
        }
        Ok(())
    }

    /// Facts of the run for other programs.
    fn meta(&self) -> Meta {
        let Closing { losses, cost, .. } = self.closing;
        let window = self.account.window.duration();
        closing::meta(losses, self.account.lifetime_ns, cost, window)
    }

    fn write_human(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        for line in &self.answer {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        table(self.args, self.account).write(style, out)
    }
}

/// The sentences, and the command that looks further.
fn answer(args: &Args, account: &Account) -> Vec<String> {
    let mut answer = sentences(account);
    answer.push(next::next(args, account, session::next::is_there));
    answer
}

/// All lines, the small ones together.
pub(super) fn table(args: &Args, account: &Account) -> Lines {
    let mut table = Lines::new();
    let least_ns = account.busy_ns() / LEAST;
    let (mut shown, mut more) = (0, Vec::new());
    for line in &account.lines {
        let is_last = line.kind == IDLE || is_remainder(line);
        let is_shown = is_last || shown < TOP && line.time_ns() > least_ns;
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
    let all = cells(account, all_ns, 0, "all of the threads' time");
    table.row(all, Vec::new());
    table
}

fn is_remainder(line: &Line) -> bool {
    [UNSEEN, LOST, RESIDUAL].contains(&line.kind)
}

fn cells(account: &Account, ns: i64, waits: u64, words: &str) -> [String; 5] {
    let share = 100.0 * ns as f64 / account.lifetime_ns.max(1) as f64;
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
            Column::right("TIME", 9),
            Column::right("SHARE", 6),
            Column::right("WAITS", 9),
            Column::right("AVG", 8),
            Column::left("WHERE THE TIME WENT", 0),
        ]);
        Self {
            table,
            remarks: Vec::new(),
        }
    }

    fn row(&mut self, cells: [String; 5], remarks: Vec<String>) {
        let [time, share, waits, mean, words] = cells;
        let cells = [time, share, waits, mean];
        self.table.fitted(cells, move |room| cut(&words, room));
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
        self.row(cells(account, ns, waits, &words), Vec::new());
    }

    fn add(&mut self, args: &Args, account: &Account, line: &Line) {
        let words = words(line) + &whose(account, line);
        let blames = line.blames.iter().filter(|_| line.is_busy());
        let shares = blames.map(|blame| (blame, line.share(blame)));
        let large = shares.filter(|(_, share)| *share >= LEAST_BLAME);
        let large = large.take(TOP_CULPRITS);
        let lock = line
            .lock
            .iter()
            .map(|lock| format!("  for {}", lock.short()));
        let blamed = large.map(|(blame, share)| remark(account, line, blame, share));
        let mut remarks: Vec<String> = lock.chain(blamed).collect();
        remarks.extend(
            line.lock
                .iter()
                .flat_map(|lock| lock.remarks(line.time_ns(), account.looked.is_none())),
        );
        remarks.extend(
            line.chain
                .iter()
                .filter(|_| line.is_busy())
                .flat_map(Chain::remarks),
        );
        remarks.extend(line.users.iter().filter_map(|users| users.remark(line)));
        if args.common.verbose {
            let (kernel, user) = &line.stack;
            let frames = kernel.iter().rev().chain(user.iter().rev());
            remarks.extend(frames.map(|frame| format!("  {}", terminal(&frame.name))));
        }
        self.row(cells(account, line.ns, line.waits, &words), remarks);
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
fn whose(account: &Account, line: &Line) -> String {
    let is_said = account.programs.len() > 1 && line.is_busy();
    match &line.whose[..] {
        [] => String::new(),
        _ if !is_said => String::new(),
        [(one, _)] => format!(", {}", name_of(one)),
        [(first, _), others @ ..] => format!(", {} +{}", name_of(first), others.len()),
    }
}

/// Words for what the time was spent on.
fn words(line: &Line) -> String {
    let what = match line.kind {
        ON_CPU => "on CPU",
        RUN_QUEUE => "waiting for a CPU",
        THROTTLED => "out of CPU quota",
        IDLE => "idle: nothing to do",
        UNSEEN => "between switches that were not seen",
        LOST => "waits that were lost",
        RESIDUAL => "not explained",
        reason => reason,
    };
    match &line.place {
        Some(place) => format!("{what:<10} {}", function(place)),
        None => what.to_owned(),
    }
}

fn remark(account: &Account, line: &Line, blame: &Blame, share: f64) -> String {
    let share = format!("{:.0}%", 100.0 * share);
    let who = who(&blame.culprit, account);
    match (&blame.culprit, line.kind) {
        (Culprit::Function(..), _) => format!("  {share} {who}"),
        (_, RUN_QUEUE) => format!("  {share} behind {who}"),
        (Culprit::Nobody, _) => format!("  {share} not over"),
        (Culprit::Program(_, Some(place)), _) => {
            format!("  {share} ended by {who} in {}", function(place))
        }
        (Culprit::Disk(..), _) => format!("  {share} {who}"),
        _ => format!("  {share} ended by {who}"),
    }
}
