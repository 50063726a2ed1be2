//! Functions by self and total share, with what chance may have added.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::escape::terminal;
use crate::folded::Idle;
use crate::heaviest::in_view;
use crate::model::{Profile, Sample};
use crate::shares::Shares;
use crate::statistics::{is_enough, widest_margin};
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{cut, percent};
use crate::units;

/// A function: its name and the last part of its module's path. Programs have functions of the same name.
pub type Function<'a> = (&'a str, Option<&'a str>);

/// Where samples without any frame are counted, so that self shares add up to all.
const NO_STACK: Function<'static> = ("[no stack]", None);

/// What was measured in one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCount {
    /// With the function at the leaf.
    pub own: u64,
    /// With the function anywhere, once per stack however often it recurses.
    pub total: u64,
    /// Samples behind `own`.
    pub own_samples: u64,
    /// Samples behind `total`.
    pub total_samples: u64,
}

/// How the table looks.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Functions shown; what is left out is summed up.
    pub top: usize,
    /// Columns of the terminal.
    pub width: usize,
    /// Values come from sampling: shares have a 95 % interval. Else they are exact and shown themselves.
    pub sampled: bool,
    /// Idle waits; folded ones are left out.
    pub idle: Idle,
    /// Bold heading, dim modules.
    pub style: Style,
}

/// Adds up every function of these samples.
pub fn count<'a>(samples: &[&'a Sample]) -> HashMap<Function<'a>, FunctionCount> {
    let mut functions: HashMap<Function<'a>, FunctionCount> = HashMap::new();
    for &sample in samples {
        let (value, samples) = (sample.total(), sample.count);
        let frames = sample.user.iter().chain(sample.kernel.iter());
        let stack: Vec<Function<'a>> = frames
            .map(|frame| (&*frame.name, frame.module.as_deref().map(last_part)))
            .collect();
        let leaf = stack.last().copied().unwrap_or(NO_STACK);
        let once: HashSet<Function<'a>> = stack.into_iter().chain([leaf]).collect();
        for function in once {
            let sums = functions.entry(function).or_default();
            sums.total = sums.total.saturating_add(value);
            sums.total_samples = sums.total_samples.saturating_add(samples);
        }
        let sums = functions.entry(leaf).or_default();
        sums.own = sums.own.saturating_add(value);
        sums.own_samples = sums.own_samples.saturating_add(samples);
    }
    functions
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Writes the functions with the largest self share, without emphasis and idle waits like others.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    top: usize,
    width: usize,
    sampled: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let options = TableOptions {
        top,
        width,
        sampled,
        idle: Idle::Show,
        style: Style::Plain,
    };
    write_table(profile, &options, out)
}

/// Writes the functions with the largest self share, then what is left out.
///
/// # Errors
///
/// Those of `out`.
pub fn write_table(
    profile: &Profile,
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = in_view(&profile.samples, options.idle);
    let all = FunctionCount {
        own: shown
            .iter()
            .fold(0, |sum, sample| sample.total().saturating_add(sum)),
        own_samples: shown
            .iter()
            .fold(0, |sum, sample| sample.count.saturating_add(sum)),
        ..FunctionCount::default()
    };
    let mut functions: Vec<(Function<'_>, FunctionCount)> = count(&shown).into_iter().collect();
    functions.sort_by(|a, b| {
        let by_weight = (b.1.own, b.1.total).cmp(&(a.1.own, a.1.total));
        by_weight.then(a.0.cmp(&b.0))
    });
    if options.sampled && !is_enough(all.own_samples) {
        warn(all.own_samples, out)?;
    }
    let shares = Shares {
        is_sampled: options.sampled,
        unit: profile.unit(),
        value: all.own,
        samples: all.own_samples,
    };
    let columns = [shares.columns("SELF"), shares.columns("TOTAL")].concat();
    let mut table = Table::new([columns, vec![Column::left("FUNCTION", 0)]].concat());
    for (function, counts) in functions.iter().take(options.top) {
        let own = shares.cells(counts.own, counts.own_samples);
        let total = shares.cells(counts.total, counts.total_samples);
        table.fitted([own, total].concat(), |room| {
            name(*function, room.max(20), options.style)
        });
    }
    table.write(options.width, options.style, out)?;
    let rest = functions.get(options.top..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest
            .iter()
            .fold(0, |sum, (_, counts)| counts.own.saturating_add(sum));
        let n = units::count(rest.len() as u64);
        let plural = if rest.len() == 1 { "" } else { "s" };
        writeln!(
            out,
            "… {n} more function{plural}: {} self",
            percent(own, all.own)
        )?;
    }
    Ok(())
}

fn warn(n: u64, out: &mut impl Write) -> io::Result<()> {
    let plural = if n == 1 { "" } else { "s" };
    writeln!(
        out,
        "Only {n} sample{plural}: shares may be off by {:.0} percentage points.",
        100.0 * widest_margin(n)
    )?;
    writeln!(out, "Trace longer or raise the rate to trust them.\n")
}

/// The function, cut so that its module fits behind it.
fn name((name, module): Function<'_>, room: usize, style: Style) -> String {
    let name = terminal(name);
    // The names of unknown functions begin with their module.
    let module = module.filter(|module| !name.starts_with(*module));
    let Some(module) = module.map(|module| cut(&terminal(module), room / 2)) else {
        return cut(&name, room);
    };
    let name = cut(&name, room.saturating_sub(module.chars().count() + 2));
    format!("{name}  {}", style.dim(module))
}
