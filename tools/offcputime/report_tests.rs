//! Reports of made-up rows.

use budget::Series;
use clap::Parser;
use host::clock::Edges;
use profile::losses::Losses;
use profile::model::Task;

use super::*;
use crate::narrow::{COMMS, LONG_NS, MANY, assert_narrow};
use budget::Estimate;

#[test]
fn what_is_not_sure_is_said_in_words() {
    let (mut once, mut never) = (Series::default(), Series::default());
    once.push(1_000.0, 10_000, 1_000_000);
    never.push(0.0, 10_000, 1_000_000);
    never.push(0.0, 10_000, 1_000_000);
    let errors = Estimates {
        oncpu: once.estimate(1.0),
        runqueue: never.estimate(1.0),
        blocked: Estimate {
            total: 200.0,
            error: 2.0,
            margin: 5.0,
        },
    };
    let accounting = Accounting {
        threads: 1,
        lifetime_ns: 100_200,
        oncpu_ns: 100_000,
        blocked_ns: 200,
        ..Accounting::default()
    };
    assert_eq!(
        phases(&accounting, 100, Some(&errors)),
        [
            "1 thread, 100 us of thread time: on CPU 100 us \u{b1}? (a single look),",
            "  waiting for a CPU 0 ns \u{b1}? (nothing seen), blocked 200 ns \u{b1}2.5%,",
            "  100 ns of it idle",
        ]
    );
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    let accounting = Accounting {
        threads: MANY,
        lifetime_ns: LONG_NS,
        oncpu_ns: LONG_NS,
        runqueue_ns: LONG_NS,
        blocked_ns: LONG_NS,
        ..Accounting::default()
    };
    let mut harvest = Harvest {
        rows: Vec::new(),
        accounting,
        losses: Losses::default(),
        window: Edges::default(),
        open: MANY,
        estimates: None,
    };
    let samples = reasons::WORDS.iter().flat_map(|reason| {
        COMMS.map(|comm| Sample {
            task: Task {
                comm: comm.into(),
                tgid: 4_194_304,
                tid: 4_194_303,
            },
            reason: Some(reason),
            idle: *reason == "poll",
            count: MANY,
            values: vec![LONG_NS, LONG_NS],
            ..Sample::default()
        })
    });
    let profile = Profile {
        tool: "offcputime",
        values: VALUES.to_vec(),
        samples: samples.collect(),
        duration_ns: LONG_NS,
    };
    let estimate = Estimate {
        total: LONG_NS as f64,
        margin: 7.0 * LONG_NS as f64,
        ..Estimate::default()
    };
    let estimates = Estimates {
        oncpu: estimate,
        runqueue: estimate,
        blocked: estimate,
    };
    for (options, estimates) in [
        ("offcputime", None),
        ("offcputime --split", None),
        ("offcputime --max-overhead 1", Some(estimates)),
    ] {
        harvest.estimates = estimates;
        let args = Args::parse_from(options.split_whitespace());
        let mut out = Vec::new();
        write_human(&args, &harvest, &profile, &mut out).expect("a vector");
        assert_narrow(&String::from_utf8(out).expect("text"));
    }
}
