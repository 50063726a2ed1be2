//! flame gate.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use profile::compare::diff::{functions, tree};
use profile::compare::gate::{Limits, Place, gate};
use profile::draw::tree::Paths;
use profile::escape::terminal;
use profile::folded::Idle;
use profile::units;

use crate::diff::read_both;
use crate::input::Input;

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

    /// How much the whole may grow
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_total: Option<f64>,

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

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let [base, new] = read_both(&args.input, &args.base, &args.new)?;
    let paths = Paths {
        idle: Idle::Fold,
        ..Paths::default()
    };
    let tree = tree(&base, &new, paths);
    let diff = functions(&tree, &base, &new);
    if diff.whole.iter().any(|side| side.total == 0) {
        anyhow::bail!("a profile without values cannot be judged");
    }
    let limits = Limits {
        growth: args.max_growth,
        total: args.max_total,
        own: args.own,
    };
    let exceeded = gate(&tree, &diff, &limits);
    let mut text = String::new();
    for guilty in &exceeded.guilty {
        let [before, after] = guilty.judged.shares.map(|share| 100.0 * share);
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
    if let Some(grown) = exceeded.total {
        let [before, after] = [0, 1].map(|side| units::value(diff.whole[side].total, new.unit()));
        text += &format!(
            "GREW  {:+.1} % in all  {before} -> {after}\n",
            100.0 * grown
        );
    }
    let limit = 100.0 * args.max_growth;
    text += &match (exceeded.is_any(), exceeded.unclear) {
        (true, _) => format!("flame gate: exceeded (limit {limit} pp)\n"),
        (false, 0) => format!("flame gate: passed, no function grew by more than {limit} pp\n"),
        (false, n) => format!(
            "flame gate: passed; {} over {limit} pp are within chance: record longer to know\n",
            units::counted(n as u64, "functions")
        ),
    };
    crate::output::write(None, |out| out.write_all(text.as_bytes()))?;
    Ok(if exceeded.is_any() {
        ExitCode::from(crate::EXCEEDED)
    } else {
        ExitCode::SUCCESS
    })
}
