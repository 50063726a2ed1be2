//! One window of profile that stands for itself is the exact run.

use clap::Parser;
use fastrand::Rng;
use profile::losses::Losses;

use super::*;
use crate::one_window::{self, assert_same, stack};
use crate::profile::sampled::Sums;

/// JSON but for the ticks that a clock owes: only a run without a budget holds samples to the kernel's account.
fn json_of(args: &Args, harvest: &Harvest) -> String {
    let samples = harvest.rows.iter().map(|row| Sample {
        task: row.task.clone(),
        user: stack(row.user),
        kernel: stack(row.kernel),
        count: row.samples,
        values: vec![row.weight],
        ..Sample::default()
    });
    let profile = Profile {
        tool: "profile",
        values: vec![ValueType::new(args.event.value_name(None), unit(args))],
        samples: samples.collect(),
        duration_ns: harvest.window.ns(),
    };
    let report = Report {
        args,
        harvest,
        profile: &profile,
        cost: &Cost::default(),
    };
    let mut extra = report.extra();
    let events = extra["events"].as_object_mut().expect("an object");
    events.remove("expected");
    one_window::json_of(&profile, extra)
}

fn row(rng: &mut Rng, kernel: u64) -> Row {
    Row {
        task: one_window::task(rng),
        user: rng.u64(..5),
        // No two are the same.
        kernel,
        samples: 1 + (rng.u64(..) >> rng.u32(5..64)),
        weight: rng.u64(..) >> rng.u32(5..64),
    }
}

#[test]
fn one_window_is_the_exact_run() {
    let args = Args::parse_from(["profile"]);
    assert_same(|rng, window, one| {
        let idle = rng.u64(..1 << 50);
        let totals = Totals {
            events: idle + rng.u64(..1 << 50),
            idle,
            others: rng.u64(..1 << 50),
            samples: rng.u64(..1 << 50),
        };
        let count = rng.u64(..300);
        let rows = |rng: &mut Rng| (0..count).map(|at| row(rng, at)).collect::<Vec<Row>>();
        let mut sums = Sums::default();
        sums.add(rows(&mut rng.clone()), totals, one);
        let mut harvest = sums.harvest(1.0, window);
        // The same as where nothing was left out.
        harvest.estimates = None;
        let mut losses = Losses::default();
        losses.count("windows_full", "", 0);
        let mut told = rows(rng);
        told.sort_by(|one, other| one.place().cmp(&other.place()));
        let told = Harvest {
            rows: told,
            totals,
            losses,
            window,
            expected: Some(count),
            ..tests::harvest_of(0)
        };
        [json_of(&args, &harvest), json_of(&args, &told)]
    });
}
