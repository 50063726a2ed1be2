//! profile's samples of a clock, beside a clock of the harness's own.

use std::fs;
use std::ops::Range;
use std::path::Path;

use oracle::ticks::{Clock, Ticks};
use profile::read::perf::header;

use crate::prelude::*;

/// Beside a tool that samples so often in a second.
pub(crate) fn clock(hertz: u64) -> Clock {
    Clock::start(1_000_000_000 / hertz).expect("the oracle")
}

/// The same as [`traced`] with profile, at `hertz`, and what the clocks did meanwhile.
pub(crate) fn clocked(hertz: u64, options: &str, mut workload: Workload) -> Clocked {
    let args = format!("-j -F {hertz} {options} -p {}", workload.pid());
    let tool = Tool::attached("profile", args);
    let clock = clock(hertz);
    let results = workload.work();
    let report = tool.report();
    let ticks = clock.take().expect("a whole log");
    workload.finish();
    Clocked {
        report,
        results,
        ticks,
    }
}

/// A workload by profile and by itself, and what the clocks did.
pub(crate) struct Clocked {
    pub(crate) report: Value,
    pub(crate) results: Vec<Value>,
    pub(crate) ticks: Ticks,
}

/// The threads have as many samples as their turns on CPUs have ticks.
pub(crate) fn assert_all_ticks(found: u64, ticks: &Ticks, tids: impl Iterator<Item = u32>) {
    let (mut least, mut most) = (0, 0);
    for tid in tids {
        let bounds = ticks.all_samples(tid);
        least += bounds.start();
        most += bounds.end();
    }
    assert_within("samples", found, least..=most, "");
}

/// The same of one thread for a part of the time, ns, whose edges samples know to the microsecond.
pub(crate) fn assert_ticks(found: u64, ticks: &Ticks, tid: u32, when: &Range<u64>) {
    const MICROSECOND: u64 = 1000;
    let inner = when.start + MICROSECOND..when.end.saturating_sub(MICROSECOND);
    let outer = when.start - MICROSECOND..when.end.saturating_add(MICROSECOND);
    let least = *ticks.samples(tid, &inner).start();
    let most = *ticks.samples(tid, &outer).end();
    assert_within("samples", found, least..=most, "");
}

/// A sample.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Its thread.
    tid: u32,
    /// Time of the monotonic clock, whole microseconds.
    pub(crate) ns: u64,
    /// Its functions, the leaf first.
    pub(crate) functions: Vec<String>,
}

impl Moment {
    /// The function ran, or had called what did.
    pub(crate) fn is_in(&self, function: &str) -> bool {
        self.functions.iter().any(|name| name == function)
    }
}

/// A thread's samples in a `.perf.txt`.
pub(crate) fn moments(path: &Path, tid: u32) -> Vec<Moment> {
    let all = all_moments(path).into_iter();
    all.filter(|one| one.tid == tid).collect()
}

/// All samples in one.
pub(crate) fn all_moments(path: &Path) -> Vec<Moment> {
    let text = fs::read_to_string(path).expect("text");
    let events = text.split("\n\n");
    let moment = |event: &str| {
        let mut lines = event.lines().skip_while(|line| line.starts_with('#'));
        let head = header(lines.next()?)?;
        // The name is between an address and an offset.
        let name = |line: &str| {
            let name = line.trim_start().split_once(' ')?.1;
            Some(name.rsplit_once("+0x")?.0.to_owned())
        };
        Some(Moment {
            tid: head.tid,
            ns: (head.time? * 1e6).round() as u64 * 1000,
            functions: lines.filter_map(name).collect(),
        })
    };
    events.filter_map(moment).collect()
}
