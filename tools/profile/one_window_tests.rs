//! One window that stands for itself, as a run without a budget has it or one within a budget that allows to look all the time: the
//! report is what the programs have counted, byte for byte.

use std::sync::Arc;

use budget::Window;
use clap::Parser;
use fastrand::Rng;
use profile::frame::{Frame, FrameKind};
use profile::losses::Losses;
use profile::model::Task;

use super::*;
use crate::profile::harvest::Totals;
use crate::profile::sampled::Sums;

/// A stack that stands for an id.
fn stack(id: u64) -> Arc<[Frame]> {
    let frame = Frame {
        name: format!("function {id}").into(),
        kind: FrameKind::User,
        inlined: false,
        module: None,
        address: id,
        line: None,
    };
    [frame].into()
}

/// JSON but for the cost of the run, which is never the same, and for the ticks that a clock owes: only a run without a budget holds
/// samples to the kernel's account.
fn json_of(args: &Args, harvest: &Harvest) -> String {
    let samples = harvest.rows.iter().map(|row| Sample {
        task: row.task.clone(),
        reason: None,
        user: stack(row.user),
        user_end: None,
        kernel: stack(row.kernel),
        waker: None,
        idle: false,
        count: row.samples,
        values: vec![row.weight],
    });
    let profile = Profile {
        tool: "profile",
        values: vec![ValueType {
            name: args.event.value_name(None),
            unit: unit(args),
        }],
        samples: samples.collect(),
        duration_ns: harvest.window.ns(),
    };
    let mut extra = extra(args, harvest, &profile, &Cost::default());
    extra.remove("cost");
    let events = extra["events"].as_object_mut().expect("an object");
    events.remove("expected");
    let mut out = Vec::new();
    json::write(&profile, &extra, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

fn row(rng: &mut Rng, kernel: u64) -> Row {
    let tgid = rng.u32(1..9);
    Row {
        task: Task {
            comm: format!("thread{}", rng.u32(0..3)).into(),
            tgid,
            tid: tgid + rng.u32(0..3),
        },
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
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let start_ns = rng.u64(..1 << 50);
        let end_ns = start_ns + rng.u64(1..1 << 50);
        let window = Edges { start_ns, end_ns };
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
        let one = Window {
            start_ns,
            end_ns,
            stratum_ns: end_ns - start_ns,
        };
        sums.add(rows(&mut rng.clone()), totals, &one);
        let mut harvest = sums.harvest(1.0, window);
        // The same as where nothing was left out.
        harvest.estimates = None;
        let mut losses = Losses::default();
        losses.count("windows_full", "", 0);
        let mut told = rows(&mut rng);
        told.sort_by(|one, other| one.place().cmp(&other.place()));
        let told = Harvest {
            rows: told,
            totals,
            losses,
            window,
            expected: Some(seed),
            estimates: None,
        };
        let (one, exact) = (json_of(&args, &harvest), json_of(&args, &told));
        assert_eq!(one, exact, "seed {seed}");
    }
}
