//! flame diff.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use profile::compare::diff::{Diff, functions, tree};
use profile::compare::report::{TableOptions, write};
use profile::compare::scale::{NoLength, Scale, Values};
use profile::draw::{self, View};
use profile::escape;
use profile::folded::Idle;
use profile::recording::Recording;
use profile::style::Style;
use profile::tree::Paths;
use profile::write::Format;

use crate::input::Input;
use crate::output::{self, Target, target};
use crate::{next, terminal};

/// Columns of the table in a page.
const PAGE_WIDTH: usize = 120;

const EXAMPLES: &str = "\
Examples:
  profile -p 123 30 -o before.json
  profile -p 123 30 -o after.json   # the new version, under the same load
  flame diff before.json after.json -o change.html

The function that grew most comes first, then what else grew or shrank beyond
chance; in pictures red grew, blue shrank.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Profile to compare with
    base: PathBuf,

    /// Profile that may have changed
    new: PathBuf,

    #[command(flatten)]
    input: Input,

    /// Also draw the change, as .svg or .html
    #[arg(short, long, value_name = "FILE", value_parser = target)]
    output: Option<Target>,

    /// Compare values per second, not shares of the totals
    #[arg(long)]
    absolute: bool,

    /// Compare values as they are
    #[arg(long, conflicts_with = "absolute")]
    raw: bool,

    /// List changes within chance too
    #[arg(long)]
    all: bool,

    /// Functions to list
    #[arg(short, long, value_name = "ROWS", default_value_t = 20)]
    number: usize,

    /// Root at the top
    #[arg(long)]
    icicle: bool,
}

impl Args {
    /// The option that chose what is compared.
    fn how(&self) -> Option<&'static str> {
        let absolute = self.absolute.then_some("--absolute");
        absolute.or(self.raw.then_some("--raw"))
    }
}

/// Both profiles, of which it makes sense to say that one grew.
pub(crate) fn read_both(input: &Input, base: &Path, new: &Path) -> Result<[Recording; 2]> {
    let both = [input.read(base)?, input.read(new)?];
    let [base_unit, new_unit] = [both[0].unit(), both[1].unit()];
    if base_unit != new_unit && !base_unit.is_empty() && !new_unit.is_empty() {
        bail!("BASE counts {base_unit}, NEW counts {new_unit}; they cannot be compared");
    }
    if base_unit.is_empty() || new_unit.is_empty() {
        profile::say!(
            "flame: values without a unit are taken for samples; --unit us if they are times in us"
        );
    }
    Ok(both)
}

/// Values of both per second, or as they are.
pub(crate) fn values(files: [&Path; 2], both: &[Recording; 2], raw: bool) -> Result<Values> {
    let [base, new] = both;
    if raw {
        return Ok(Values::totals(base, new));
    }
    Values::rates(base, new).map_err(|NoLength(side)| {
        let file = escape::terminal(&files[side].to_string_lossy()).into_owned();
        anyhow!("{file} does not say how long it was recorded, for values per second; compare them as they are with --raw")
    })
}

fn scale(args: &Args, both: &[Recording; 2]) -> Result<Scale> {
    if args.absolute || args.raw {
        let files = [args.base.as_path(), args.new.as_path()];
        return values(files, both, args.raw).map(Scale::Values);
    }
    Ok(Scale::Shares)
}

/// Commands for the function that moved most and for the picture, or for what is within chance.
fn next(args: &Args, diff: &Diff) -> Vec<String> {
    let Some(function) = diff.first() else {
        let files = [args.base.as_path(), args.new.as_path()];
        let answers = "what changed by chance";
        let words: Vec<&str> = std::iter::once("--all").chain(args.how()).collect();
        let all = next::line("diff", &files, &args.input, &words, answers);
        return all.filter(|_| !args.all).into_iter().collect();
    };
    let is_in_new = |name: &str| {
        let found = diff.functions.iter().find(|mover| mover.name == name);
        found.is_some_and(|mover| mover.total[1].total > 0)
    };
    let side = if is_in_new(function) {
        &args.new
    } else {
        &args.base
    };
    let peek = next::peek(side, &args.input, function);
    let picture = match args.output {
        None => next::picture([&args.base, &args.new], &args.input, args.how()),
        Some(_) => None,
    };
    peek.into_iter().chain(picture).collect()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args
        .output
        .as_ref()
        .is_some_and(|target| !matches!(target.format, Format::Svg | Format::Html))
    {
        bail!("diff draws .svg and .html only");
    }
    let both = read_both(&args.input, &args.base, &args.new)?;
    let scale = scale(args, &both)?;
    let [base, new] = both;
    let paths = Paths {
        idle: Idle::Fold,
        ..Paths::default()
    };
    let tree = tree(&base, &new, paths);
    let diff = functions(&tree, &base, &new, scale);
    let options = TableOptions {
        rows: args.number,
        width: terminal::width(),
        style: terminal::style(),
        all: args.all,
    };
    let units = [base.unit(), new.unit()];
    let next = next(args, &diff);
    output::write(None, |mut out| {
        write(&diff, units, &options, &mut out)?;
        next.iter().try_for_each(|line| writeln!(out, "{line}"))
    })?;
    if let Some(target) = &args.output {
        let view = View {
            title: format!("{}: what changed from BASE to NEW", draw::subject(&new, "")),
            icicle: args.icicle,
            compared: Some(diff.scale.clone()),
            ..View::default()
        };
        let amount = diff.scale.sentence(&diff.whole, units);
        let mut table = Vec::new();
        let plain = TableOptions {
            width: PAGE_WIDTH,
            style: Style::Plain,
            ..options
        };
        write(&diff, units, &plain, &mut table)?;
        let table = String::from_utf8_lossy(&table);
        output::write(Some(&target.path), |mut out| match target.format {
            Format::Html => {
                draw::compared_html(&tree, &view, new.unit(), (&amount, &table), &mut out)
            }
            _ => draw::compared(&tree, &view, new.unit(), &amount, &mut out),
        })?;
        output::say(target);
    }
    Ok(())
}
