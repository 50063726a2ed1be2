//! flame gate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use profile::compare::diff::{functions, tree};
use profile::compare::gate::{Exceeded, Limits, Place, gate};
use profile::compare::scale::{Scale, Values};
use profile::escape::terminal;
use profile::folded::Idle;
use profile::recording::Recording;
use profile::table::{Column, Table};
use profile::text::{WIDTH, cut, cut_to_fit};
use profile::tree::{Paths, Side};
use profile::units;

use crate::diff::{read_both, values};
use crate::input::Input;
use crate::{next, output, terminal as screen};

/// The exit status for a change that exceeds a limit.
const EXCEEDED: u8 = 4;

/// Beginning of the answer where something grew too much.
const FAILED: &str = "flame gate: failed: ";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Profile to compare with
    base: PathBuf,

    /// Profile that may have grown
    new: PathBuf,

    #[command(flatten)]
    input: Input,

    /// How much a function's share may grow, percentage points
    #[arg(long, value_name = "POINTS", default_value = "5pp", value_parser = points)]
    max_growth: f64,

    /// Growth of the whole that is allowed, per second that was recorded
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_total: Option<f64>,

    /// With --max-total: the whole as it is
    #[arg(long, requires = "max_total")]
    raw: bool,

    /// Functions alone, without what they call
    #[arg(long = "self")]
    own: bool,
}

fn points(text: &str) -> Result<f64, String> {
    number(text.strip_suffix("pp").unwrap_or(text))
}

fn percent(text: &str) -> Result<f64, String> {
    number(text.strip_suffix('%').unwrap_or(text))
}

fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim()
        .parse()
        .map_err(|_| "give a number such as 5".to_owned())?;
    if (0.0..=1e6).contains(&number) {
        Ok(number / 100.0)
    } else {
        Err("it must be 0 or more".into())
    }
}

/// Half a file would pass.
fn ensure_whole(files: [&Path; 2], both: &[Recording; 2]) -> Result<()> {
    for (file, profile) in files.iter().zip(both) {
        let name = terminal(&file.to_string_lossy()).into_owned();
        anyhow::ensure!(
            profile.header.left_out.malformed == 0,
            "{name} is damaged: a gate takes whole files only"
        );
    }
    Ok(())
}

/// Folded stacks say nothing of time: their wholes are compared as they are, and that is said.
fn has_no_length(files: [&Path; 2], both: &[Recording; 2]) -> bool {
    let is_without = |recording: &Recording| recording.header.duration_ns == 0;
    let found = files
        .iter()
        .zip(both)
        .find(|(_, recording)| is_without(recording));
    if let Some((file, _)) = found {
        let name = terminal(&file.to_string_lossy()).into_owned();
        profile::say!(
            "flame: {name} does not say how long it was recorded: --max-total compares values as they are"
        );
    }
    found.is_some()
}

/// A share as it was asked for, in hundredths, without the noise of its binary fraction.
fn hundredths(share: f64) -> f64 {
    (100.0 * share * 1e6).round() / 1e6
}

/// The answer in a line: passed or failed, and why.
fn verdict(args: &Args, exceeded: &Exceeded, total: Option<&Values>, whole: &[Side; 2]) -> String {
    let limit = format!("{} pp", hundredths(args.max_growth));
    let all = args.max_total.map(|all| format!("{} %", hundredths(all)));
    let mut reasons = Vec::new();
    if let (Some(grown), Some(values), Some(all)) = (exceeded.total, total, &all) {
        let [before, after] = values.levels(whole).map(|level| values.text(level));
        let (noun, each) = (
            values.noun(),
            if values.are_rates() { " a second" } else { "" },
        );
        let grown = 100.0 * grown;
        let said =
            format!("all grew by {grown:.1} %, {before} -> {after}{noun}{each} (limit {all})");
        reasons.push(match FAILED.len() + said.len() > WIDTH {
            true => said.replacen(", ", ",\n  ", 1),
            false => said,
        });
    }
    if let Some(most) = exceeded.guilty.first() {
        let growth = 100.0 * most.judged.change();
        let rest = format!(" grew by {growth:.2} pp (limit {limit})");
        let more = match exceeded.guilty.len() as u64 - 1 {
            0 => String::new(),
            n => format!(", {} more", units::count(n)),
        };
        let said = cut_to_fit(&terminal(&most.name), &(rest + &more), WIDTH - FAILED.len());
        reasons.push(said);
    }
    if !reasons.is_empty() {
        return format!("{FAILED}{}", reasons.join(";\n  "));
    }
    match (exceeded.unclear, all) {
        (0, None) => format!("flame gate: passed: no function grew by over {limit}"),
        (0, Some(all)) => {
            format!("flame gate: passed: no function grew by over {limit}, nor all by over {all}")
        }
        (n, _) => format!(
            "flame gate: passed: {} over {limit}, within chance: record longer",
            units::counted(n as u64, "functions")
        ),
    }
}

/// Functions and calls that grew.
fn table(exceeded: &Exceeded) -> Option<Table<'_>> {
    let mut table = Table::new([
        Column::right("GREW", 9),
        Column::right("BASE", 7),
        Column::right("NEW", 7),
        Column::left("FUNCTION", 0),
    ]);
    for guilty in &exceeded.guilty {
        let [before, after] = guilty.judged.levels.map(|share| 100.0 * share);
        let cells = [
            format!("{:+.2}pp", after - before),
            format!("{before:.2}%"),
            format!("{after:.2}%"),
        ];
        table.fitted(cells, move |room| {
            let place = match &guilty.place {
                Place::Everywhere => String::new(),
                Place::Itself => ", by itself".into(),
                Place::CalledBy(caller) => {
                    format!(", called by {}", cut(&terminal(caller), room / 3))
                }
            };
            cut_to_fit(&terminal(&guilty.name), &place, room)
        });
    }
    (!exceeded.guilty.is_empty()).then_some(table)
}

/// The command that shows more: of a function that failed its callers, else the whole change; of a total that failed by the option
/// `absolute`, for shares may be as they were.
fn next(args: &Args, exceeded: &Exceeded, absolute: &str) -> Option<String> {
    let files = [args.base.as_path(), args.new.as_path()];
    let is_total = exceeded.is_any() && exceeded.guilty.is_empty();
    let words = if is_total { &[absolute][..] } else { &[] };
    let all = || next::line("diff", &files, &args.input, words, "all that changed");
    match exceeded.guilty.first() {
        Some(most) => next::peek(&args.new, &args.input, &most.name).or_else(all),
        None => all(),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let both = read_both(&args.input, &args.base, &args.new)?;
    let files = [args.base.as_path(), args.new.as_path()];
    ensure_whole(files, &both)?;
    let raw = args.raw || args.max_total.is_some() && has_no_length(files, &both);
    let total = match args.max_total {
        Some(limit) => Some((limit, values(files, &both, raw)?)),
        None => None,
    };
    let [base, new] = both;
    let paths = Paths {
        idle: Idle::Fold,
        ..Paths::default()
    };
    let tree = tree(&base, &new, paths);
    let diff = functions(&tree, &base, &new, Scale::Shares);
    if diff.whole.iter().any(|side| side.total == 0) {
        anyhow::bail!("a profile without values cannot be judged");
    }
    let limits = Limits {
        growth: args.max_growth,
        total,
        own: args.own,
    };
    let exceeded = gate(&tree, &diff, &limits);
    let values = limits.total.as_ref().map(|(_, values)| values);
    let verdict = verdict(args, &exceeded, values, &diff.whole);
    let absolute = if raw { "--raw" } else { "--absolute" };
    output::write(None, |mut out| {
        writeln!(out, "{verdict}")?;
        if let Some(table) = table(&exceeded) {
            table.write(screen::width(), screen::style(), &mut out)?;
        }
        let next = next(args, &exceeded, absolute);
        next.iter().try_for_each(|line| writeln!(out, "{line}"))
    })?;
    Ok(if exceeded.is_any() {
        ExitCode::from(EXCEEDED)
    } else {
        ExitCode::SUCCESS
    })
}
