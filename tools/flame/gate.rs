//! flame gate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use profile::compare::diff::{functions, tree};
use profile::compare::gate::{Exceeded, Limits, Place, gate};
use profile::compare::scale::Scale;
use profile::escape::terminal;
use profile::folded::Idle;
use profile::recording::Recording;
use profile::tree::Paths;
use profile::units;

use crate::diff::{read_both, values};
use crate::input::Input;

/// The exit status for a change that exceeds a limit.
const EXCEEDED: u8 = 4;

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

fn verdict(args: &Args, exceeded: &Exceeded) -> String {
    let limit = format!("{} pp", 100.0 * args.max_growth);
    let whole = args.max_total.map(|total| format!("{} %", 100.0 * total));
    if exceeded.is_any() {
        let of_functions = (!exceeded.guilty.is_empty()).then_some(limit);
        let of_all = whole
            .filter(|_| exceeded.total.is_some())
            .map(|all| all + " in all");
        let limits: Vec<String> = of_functions.into_iter().chain(of_all).collect();
        return format!("flame gate: exceeded (limit {})\n", limits.join(", "));
    }
    let whole = whole.map_or(String::new(), |whole| {
        format!(", nor all by more than {whole}")
    });
    match exceeded.unclear {
        0 => format!("flame gate: passed, no function grew by more than {limit}{whole}\n"),
        n => format!(
            "flame gate: passed; {} over {limit} are within chance: record longer to know\n",
            units::counted(n as u64, "functions")
        ),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let both = read_both(&args.input, &args.base, &args.new)?;
    let files = [args.base.as_path(), args.new.as_path()];
    ensure_whole(files, &both)?;
    let total = match args.max_total {
        Some(limit) => {
            let raw = args.raw || has_no_length(files, &both);
            Some((limit, values(files, &both, raw)?))
        }
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
    let mut text = String::new();
    for guilty in &exceeded.guilty {
        let [before, after] = guilty.judged.levels.map(|share| 100.0 * share);
        let place = match &guilty.place {
            Place::Everywhere => String::new(),
            Place::Itself => ", by itself".into(),
            Place::CalledBy(caller) => format!(", called by {}", terminal(caller)),
        };
        text += &format!(
            "GREW  {:+.2} pp  {before:.2} % -> {after:.2} %  {}{}\n",
            after - before,
            terminal(&guilty.name),
            place
        );
    }
    if let (Some(grown), Some((_, values))) = (exceeded.total, &limits.total) {
        let [before, after] = values.levels(&diff.whole).map(|level| values.text(level));
        let each = if values.are_rates() { ", a second" } else { "" };
        text += &format!(
            "GREW  {:+.1} % in all  {before} -> {after}{each}\n",
            100.0 * grown
        );
    }
    text += &verdict(args, &exceeded);
    crate::output::write(None, |out| out.write_all(text.as_bytes()))?;
    Ok(if exceeded.is_any() {
        ExitCode::from(EXCEEDED)
    } else {
        ExitCode::SUCCESS
    })
}
