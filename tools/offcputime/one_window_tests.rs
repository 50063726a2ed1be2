//! One window of offcputime that stands for itself is the exact run.

use fastrand::Rng;
use host::clock::Edges;
use host::waits::Wait;
use profile::model::StackEnd;

use clap::Parser;

use super::*;
use crate::made_up::off_cpu;
use crate::offcputime::details::Lengths;
use crate::offcputime::losses::Lost;
use crate::offcputime::sampled::Sums;
use crate::one_window::{self, assert_same, stack};

fn json_of(harvest: &Harvest) -> String {
    let samples = harvest.rows.iter().map(|row| Sample {
        task: row.task.clone(),
        reason: Some(row.wait.reason().name()),
        user: stack(row.user),
        user_end: Some(StackEnd::Root),
        kernel: stack(row.kernel),
        count: row.count,
        values: vec![row.blocked_ns, row.runqueue_ns],
        ..Sample::default()
    });
    let profile = off_cpu(samples.collect(), harvest.window.ns());
    let report = Report {
        args: &Args::parse_from(["offcputime"]),
        harvest,
        profile: &profile,
        cost: &Cost::default(),
    };
    let extra = report.extra();
    one_window::json_of(&profile, extra)
}

fn row(rng: &mut Rng, kernel: u64) -> Row {
    let is_open = rng.u32(0..8) == 0;
    Row {
        task: one_window::task(rng),
        wait: Wait {
            flags: rng.u8(..),
            syscall: rng.i16(-1..400),
            ..Wait::default()
        },
        endpoint: rng.u64(..3),
        user: rng.u64(..5),
        // No two are the same.
        kernel,
        waker: rng.u64(..3),
        blocked_ns: rng.u64(..) >> rng.u32(5..64),
        runqueue_ns: rng.u64(..) >> rng.u32(5..64),
        count: if is_open { 1 } else { rng.u64(1..1 << 40) },
        is_open,
        open_number: None,
        lengths: Lengths::default(),
    }
}

/// All that the programs tell at the end of the window.
fn part(rng: &mut Rng, window: Edges) -> Harvest {
    let mut number = || rng.u64(..1 << 56);
    let accounting = Accounting {
        threads: number(),
        lifetime_ns: number(),
        oncpu_ns: number(),
        runqueue_ns: number(),
        blocked_ns: number(),
        unseen_ns: number(),
        filtered: number(),
        filtered_ns: number(),
        events: number(),
        lost: Lost::default(),
    };
    let rows: Vec<Row> = (0..rng.u64(..300)).map(|at| row(rng, at)).collect();
    Harvest {
        open: rows.iter().filter(|row| row.is_open).count() as u64,
        rows,
        window,
        ..tests::harvest_of(accounting)
    }
}

#[test]
fn one_window_is_the_exact_run() {
    assert_same(|rng, edges, window| {
        let mut part = part(rng, edges);
        let mut sums = Sums::default();
        sums.add(&part, part.accounting, window);
        let mut harvest = sums.harvest(1.0, edges);
        // The same as where nothing was left out.
        harvest.estimates = None;
        part.losses.time("windows_full", "", 0, 0);
        part.rows
            .sort_by(|one, other| one.place().cmp(&other.place()));
        [json_of(&harvest), json_of(&part)]
    });
}
