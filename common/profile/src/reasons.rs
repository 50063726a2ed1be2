//! Time off the CPU by reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::model::{Profile, Sample};
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::percent;
use crate::units;

/// Every reason that tools of this project give.
pub const WORDS: [&str; 21] = [
    "futex",
    "lock",
    "block-io",
    "page-fault",
    "poll",
    "epoll",
    "socket",
    "pipe",
    "file-lock",
    "semaphore",
    "eventfd",
    "inotify",
    "device",
    "msg-queue",
    "kernel-work",
    "sleep",
    "wait",
    "preempted",
    "throttled",
    "stopped",
    "other",
];

/// Words that a reason needs beside its own.
fn note(reason: &str) -> &'static str {
    match reason {
        "futex" => "lock or condition variable",
        "lock" => "inside the kernel",
        "kernel-work" => "work in the kernel (close)",
        "sleep" => "for a time of its own choice",
        "wait" => "for a child or a signal",
        "preempted" => "by others, in the run queue",
        "throttled" => "out of CPU quota",
        "device" => "a terminal, or its like",
        "stopped" => "by signal or debugger",
        _ => "",
    }
}

#[derive(Default)]
struct Line {
    ns: u64,
    waits: u64,
}

impl Line {
    fn add(&mut self, sample: &Sample) {
        self.ns = self.ns.saturating_add(sample.total());
        self.waits = self.waits.saturating_add(sample.count);
    }

    fn cells(&self, share: String) -> [String; 4] {
        [
            units::duration(self.ns),
            share,
            units::count(self.waits),
            units::duration(self.ns.checked_div(self.waits).unwrap_or(0)),
        ]
    }
}

/// Writes a line per reason, longest first, without the waits of idle threads, which have the last one; times in ns are the sum
/// of all values. Shares are of what is not idle.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    let (mut all, mut idle) = (Line::default(), Line::default());
    let mut idle_threads = BTreeSet::new();
    for sample in &profile.samples {
        if sample.idle {
            idle.add(sample);
            idle_threads.insert((sample.task.tgid, sample.task.tid));
        } else {
            all.add(sample);
            let reason = sample.reason.unwrap_or("other");
            lines.entry(reason).or_default().add(sample);
        }
    }
    let mut lines: Vec<(&str, Line)> = lines.into_iter().collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.ns));
    let mut table = Table::new([
        Column::right("OFF-CPU", 9),
        Column::right("SHARE", 7),
        Column::right("WAITS", 10),
        Column::right("AVG", 8),
        Column::left("REASON (shares are of time not idle)", 0),
    ]);
    for (reason, line) in lines {
        let [time, share, waits, mean] = line.cells(percent(line.ns, all.ns));
        let words = format!("{reason:<10} {}", note(reason));
        table.row([time, share, waits, mean, words.trim_end().into()]);
    }
    if idle.waits > 0 {
        let [time, share, waits, mean] = idle.cells("-".into());
        let threads = units::counted(idle_threads.len() as u64, "threads");
        table.row([time, share, waits, mean, format!("idle: {threads}")]);
    }
    table.write(usize::MAX, Style::Plain, out)
}
