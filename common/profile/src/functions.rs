//! Functions by self and total share, with what chance may have added.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::escape::terminal;
use crate::frame::Frame;
use crate::model::Profile;
use crate::statistics::{Share, is_enough, share};
use crate::units;

/// Samples of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCount {
    /// With the function at the leaf.
    pub own: u64,
    /// With the function anywhere, once per sample however often it recurses.
    pub total: u64,
}

/// Counts every function of a sampled profile; `weights` counts the first value instead of samples.
pub fn count(profile: &Profile) -> HashMap<&str, FunctionCount> {
    let mut functions: HashMap<&str, FunctionCount> = HashMap::new();
    for sample in &profile.samples {
        let frames: Vec<&Frame> = sample.user.iter().chain(sample.kernel.iter()).collect();
        let names: HashSet<&str> = frames.iter().map(|frame| &*frame.name).collect();
        for name in names {
            functions.entry(name).or_default().total += sample.total();
        }
        if let Some(leaf) = frames.last() {
            functions.entry(&leaf.name).or_default().own += sample.total();
        }
    }
    functions
}

/// Writes the functions with the largest self share. `sampled`: values are sample counts, so shares have a 95 % interval.
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
    let all: u64 = profile
        .samples
        .iter()
        .map(crate::model::Sample::total)
        .sum();
    let counts = count(profile);
    let mut functions: Vec<(&str, FunctionCount)> = counts.into_iter().collect();
    functions.sort_by(|a, b| {
        b.1.own
            .cmp(&a.1.own)
            .then(b.1.total.cmp(&a.1.total))
            .then(a.0.cmp(b.0))
    });
    if sampled && !is_enough(all) {
        writeln!(
            out,
            "Only {all} samples: too few to trust the shares; trace longer or raise -F.\n"
        )?;
    }
    if sampled {
        writeln!(
            out,
            "{:>6} {:>11}  {:>6} {:>11}  FUNCTION",
            "SELF", "95%", "TOTAL", "95%"
        )?;
    } else {
        writeln!(out, "{:>6}  {:>6}  FUNCTION", "SELF", "TOTAL")?;
    }
    for (name, counts) in functions.iter().take(top) {
        let (own, total) = (
            cell(counts.own, all, sampled),
            cell(counts.total, all, sampled),
        );
        let line = format!("{own}  {total}  ");
        let room = width.saturating_sub(line.len()).max(20);
        writeln!(out, "{line}{}", cut(&terminal(name), room))?;
    }
    let rest = functions.get(top..).unwrap_or_default();
    if !rest.is_empty() {
        let own: u64 = rest.iter().map(|(_, counts)| counts.own).sum();
        let share = crate::listing::percent(own, all);
        writeln!(
            out,
            "{} more functions: {share} self",
            units::count(rest.len() as u64)
        )?;
    }
    Ok(())
}

fn cell(k: u64, n: u64, sampled: bool) -> String {
    let Share { share, low, high } = share(k, n);
    let percent = format!("{:5.1}%", 100.0 * share);
    if !sampled {
        return percent;
    }
    format!(
        "{percent} {:>11}",
        format!("{:.1}-{:.1}", 100.0 * low, 100.0 * high)
    )
}

/// A name cut to a width, its end marked.
fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let head: String = name.chars().take(width.saturating_sub(3)).collect();
    format!("{head}...")
}
