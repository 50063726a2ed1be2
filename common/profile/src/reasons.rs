//! Time off the CPU by reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::model::Profile;
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::{WIDTH, cut, percent};
use crate::units;

/// Every reason that tools of this project give.
pub const WORDS: [&str; 22] = [
    "futex",
    "gil",
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

/// The word for time in the run queue, which is no part of what was waited for before it.
pub const CPU: &str = "cpu";

/// Name of the value that is time in the run queue.
const RUN_QUEUE: &str = "runqueue";

/// Time for a reason, and for a CPU, ns, of a sample's values or their sums. Quota is a reason, though who lacks it is in the run queue.
pub fn parts(profile: &Profile, reason: Option<&str>, values: &[u64]) -> [u64; 2] {
    let all_ns = values.iter().copied().fold(0, u64::saturating_add);
    let mut named = profile.values.iter().zip(values);
    let cpu_ns = match reason {
        Some("preempted") => all_ns,
        Some("throttled") => 0,
        _ => named
            .find(|(kind, _)| kind.name == RUN_QUEUE)
            .map_or(0, |(_, ns)| *ns),
    };
    [all_ns.saturating_sub(cpu_ns), cpu_ns]
}

/// Words that a reason needs beside its own.
fn note(reason: &str) -> &'static str {
    match reason {
        "futex" => "lock or condition variable",
        "gil" => "Python's interpreter",
        "lock" => "inside the kernel",
        "kernel-work" => "work in the kernel (close)",
        "sleep" => "for a time of its own choice",
        "wait" => "for a child or a signal",
        CPU => "ready, in the run queue",
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
    fn add(&mut self, ns: u64, waits: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.waits = self.waits.saturating_add(waits);
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

/// Writes a line per reason, longest first, without the waits of idle threads, which have the last one; what all of them waited
/// for a CPU has a line of its own. Shares are of what is not idle.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    let (mut all, mut idle) = (Line::default(), Line::default());
    let mut idle_threads = BTreeSet::new();
    for sample in &profile.samples {
        let [ns, cpu_ns] = parts(profile, sample.reason, &sample.values);
        if cpu_ns > 0 {
            lines.entry(CPU).or_default().add(cpu_ns, sample.count);
        }
        all.add(cpu_ns, 0);
        if sample.idle {
            idle.add(ns, sample.count);
            idle_threads.insert((sample.task.tgid, sample.task.tid));
        } else if ns > 0 || cpu_ns == 0 {
            all.add(ns, sample.count);
            let reason = sample.reason.unwrap_or("other");
            lines.entry(reason).or_default().add(ns, sample.count);
        }
    }
    let mut lines: Vec<(&str, Line)> = lines.into_iter().collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.ns));
    let mut table = Table::new([
        Column::right("OFF-CPU", 9),
        Column::right("SHARE", 7),
        Column::right("WAITS", 10),
        Column::right("AVG", 8),
        Column::left("REASON (shares of time not idle)", 0),
    ]);
    for (reason, line) in lines {
        let [time, share, waits, mean] = line.cells(percent(line.ns, all.ns));
        let words = format!("{reason:<10} {}", note(reason));
        table.fitted([time, share, waits, mean], move |room| {
            cut(words.trim_end(), room)
        });
    }
    if idle.waits > 0 {
        let [time, share, waits, mean] = idle.cells("-".into());
        let threads = units::counted(idle_threads.len() as u64, "threads");
        table.row([time, share, waits, mean, format!("idle: {threads}")]);
    }
    table.write(WIDTH, Style::Plain, out)
}
