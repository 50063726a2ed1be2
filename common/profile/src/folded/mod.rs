//! Folded stacks: `comm;root;…;leaf VALUE`, one line a stack.
//!
//! ```text
//! comm[-PID/TID] ; [idle] ; [reason] ; user root … leaf ; - ; kernel root … leaf ; [blocked] ; -- ; waker leaf … root ; waker comm
//!      threads     fold     reason                     delimiter                   split       waker
//! ```
//!
//! What is not asked for is not there. `[idle]` comes first so that all idle waits of a program are one box. The frame
//! of `split` ends the waiting stack, before any waker: the lines of a stack then add up, exactly, to its line without
//! `split`.

mod stack;

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::model::Profile;
pub(crate) use stack::{MARKS, mark, root_of};
use stack::{Stack, stack};

/// What to do with the waits of threads that have nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Put them under one `[idle]` frame at the root.
    Fold,
    /// Treat them like all others.
    #[default]
    Show,
    /// Leave everything else out.
    Only,
}

/// How lines are built.
#[derive(Clone, Copy, Debug)]
pub struct FoldedOptions {
    /// A `-` frame between user and kernel part, where there are both.
    pub delimiter: bool,
    /// `_[k]`, `_[i]`, `_[j]` behind kernel, inlined and JIT frames.
    pub annotate: bool,
    /// The reason of the wait behind the root frame, as `[futex]`.
    pub reason: bool,
    /// Root frame `comm-PID/TID`, as `stackcollapse-perf.pl --tid` has it.
    pub threads: bool,
    /// A line per value: its name, as `[blocked]`, is the last frame, so that totals stay what they are without.
    pub split: bool,
    /// Idle waits.
    pub idle: Idle,
    /// Values are divided by this at the end: 1000 makes ns µs.
    pub divisor: u64,
    /// Index of the value to write; `None`: the sum of all.
    pub value: Option<usize>,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        Self {
            delimiter: false,
            annotate: false,
            reason: false,
            threads: false,
            split: false,
            idle: Idle::Show,
            divisor: 1,
            value: None,
        }
    }
}

/// What became of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines written.
    pub lines: usize,
    /// Sum of the values written.
    pub total: u64,
    /// Undivided sum of stacks that rounded to 0 and have no line.
    pub dropped: u64,
}

/// Writes a profile, sorted; equal stacks become one line.
///
/// Values are added before they are divided, so that many short waits are not rounded away one by one; a sum is then
/// rounded half up. Sums that round to 0 have no line but are returned.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    options: &FoldedOptions,
    out: &mut impl Write,
) -> io::Result<Written> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut dropped: u64 = 0;
    for ((stack, waker), values) in merge(profile, options) {
        let mut sum: u64 = 0;
        let mut units_before = 0;
        for (index, value) in values.iter().enumerate() {
            sum = sum.saturating_add(*value);
            // The difference of rounded running sums: parts add up to the rounded whole.
            let units = divide(sum, options.divisor) - units_before;
            units_before += units;
            if units > 0 {
                let part = profile.values.get(index).filter(|_| options.split);
                let part = part.map_or_else(String::new, |part| format!(";[{}]", part.name));
                let line = lines.entry(format!("{stack}{part}{waker}")).or_default();
                *line = line.saturating_add(units);
            }
        }
        if units_before == 0 {
            dropped = dropped.saturating_add(sum);
        }
    }
    let mut total: u64 = 0;
    for (line, units) in &lines {
        writeln!(out, "{line} {units}")?;
        total = total.saturating_add(*units);
    }
    Ok(Written {
        lines: lines.len(),
        total,
        dropped,
    })
}

/// Sums by stack: of each value for `split`, else of the one to be written.
fn merge(profile: &Profile, options: &FoldedOptions) -> BTreeMap<Stack, Vec<u64>> {
    let mut sums: BTreeMap<Stack, Vec<u64>> = BTreeMap::new();
    for sample in &profile.samples {
        if options.idle == Idle::Only && !sample.idle {
            continue;
        }
        let values = match options.value {
            _ if options.split => sample.values.clone(),
            Some(index) => vec![sample.values.get(index).copied().unwrap_or(0)],
            None => vec![sample.total()],
        };
        let sum = sums.entry(stack(sample, options)).or_default();
        sum.resize(values.len().max(sum.len()), 0);
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
    }
    sums
}

/// Rounds half up.
pub(crate) fn divide(value: u64, divisor: u64) -> u64 {
    let divisor = divisor.max(1);
    value / divisor + u64::from(value % divisor >= divisor.div_ceil(2))
}
