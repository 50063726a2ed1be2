//! Time off the CPU by reason.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::model::Profile;
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::percent;
use crate::units;

/// Every reason that tools of this project give.
pub const WORDS: [&str; 13] = [
    "futex",
    "lock",
    "block-io",
    "page-fault",
    "poll",
    "epoll",
    "socket",
    "pipe",
    "sleep",
    "wait",
    "preempted",
    "throttled",
    "other",
];

#[derive(Default)]
struct Line {
    ns: u64,
    idle_ns: u64,
    waits: u64,
}

/// Writes a line per reason, longest first; times in ns are the sum of all values.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    let mut all: u64 = 0;
    for sample in &profile.samples {
        let line = lines.entry(sample.reason.unwrap_or("other")).or_default();
        let ns = sample.total();
        all = all.saturating_add(ns);
        line.ns = line.ns.saturating_add(ns);
        line.waits = line.waits.saturating_add(sample.count);
        if sample.idle {
            line.idle_ns = line.idle_ns.saturating_add(ns);
        }
    }
    let mut lines: Vec<(&str, Line)> = lines.into_iter().collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.ns));
    let mut table = Table::new([
        Column::left("WAITED FOR", 12),
        Column::right("TIME", 10),
        Column::right("SHARE", 7),
        Column::right("WAITS", 12),
        Column::right("MEAN", 10),
        Column::right("IDLE", 10),
    ]);
    for (reason, line) in lines {
        let idle = match line.idle_ns {
            0 => "-".into(),
            ns => units::duration(ns),
        };
        table.row([
            reason.into(),
            units::duration(line.ns),
            percent(line.ns, all),
            units::count(line.waits),
            units::duration(line.ns.checked_div(line.waits).unwrap_or(0)),
            idle,
        ]);
    }
    table.write(usize::MAX, Style::Plain, out)
}
