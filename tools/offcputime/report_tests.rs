//! Reports of made-up rows.

use budget::Series;
use clap::Parser;
use host::clock::Edges;
use host::waits::{Reason, Wait, flags};
use profile::losses::Losses;

use super::*;
use crate::made_up::{off_cpu, task, wait};
use crate::narrow::{COMMS, LONG_NS, MANY, assert_narrow};
use crate::offcputime::details::Details;
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

/// A harvest without rows.
pub(crate) fn harvest_of(accounting: Accounting) -> Harvest {
    Harvest {
        rows: Vec::new(),
        accounting,
        losses: Losses::default(),
        window: Edges::default(),
        open: 0,
        estimates: None,
        quotas: Vec::new(),
        details: Details::default(),
        cycles: None,
    }
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
    let mut harvest = harvest_of(accounting);
    harvest.open = MANY;
    let samples = reasons::WORDS.iter().flat_map(|reason| {
        COMMS.map(|comm| Sample {
            idle: *reason == "poll",
            count: MANY,
            ..wait(task(comm, 4_194_304, 4_194_303), reason, &[LONG_NS; 2])
        })
    });
    let profile = off_cpu(samples.collect(), LONG_NS);
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
        assert_narrow(&human(options, &harvest, &profile));
    }
}

#[test]
fn a_quota_that_threads_lacked_is_named_behind_their_answer() {
    let sample = |reason, ns| sample_of(reason, [0, ns], false);
    let of = |samples: Vec<Sample>| {
        let profile = off_cpu(samples, 1);
        let group = UsedUp {
            path: "/cg/cpu/pod".into(),
            quota_ns: 5_000_000,
            period_ns: 50_000_000,
            periods: 20,
            used_up: 18,
            throttled_ns: 810_000_000,
            ..UsedUp::default()
        };
        quota::describe(&profile, &[group.clone(), group])
    };
    let said = [
        "threads waited for want of CPU quota of /cg/cpu/pod:",
        "  5.00 ms per 50.0 ms, used up in 18 of 20 periods, 810 ms in all",
        "  (and of 1 more group)",
    ];
    let throttled = || sample("throttled", 900);
    let nothing: [String; 0] = [];
    assert_eq!(of(vec![throttled()]), said);
    assert_eq!(of(vec![throttled(), sample("preempted", 80_000)]), said);
    assert_eq!(of(vec![throttled(), sample("preempted", 90_000)]), nothing);
    assert_eq!(of(vec![sample("preempted", 90_000)]), nothing);
}

/// A process's wait, with its time blocked and in the run queue, ns.
fn sample_of(reason: &'static str, values: [u64; 2], idle: bool) -> Sample {
    Sample {
        idle,
        ..wait(task("app", 7, 7), reason, &values)
    }
}

/// A report of one process's waits: for that, so long, and idle or not.
fn report_of(options: &str, waits: &[(&'static str, u64, bool)], filtered: u64) -> String {
    let samples = waits
        .iter()
        .map(|(reason, ns, idle)| sample_of(reason, [*ns, 0], *idle));
    let profile = off_cpu(samples.collect(), 1_000_000);
    let harvest = harvest_of(Accounting {
        threads: 1,
        filtered,
        ..Accounting::default()
    });
    human(options, &harvest, &profile)
}

/// The report for people.
fn human(options: &str, harvest: &Harvest, profile: &Profile) -> String {
    let mut out = Vec::new();
    let report = Report {
        args: &Args::parse_from(options.split_whitespace()),
        harvest,
        profile,
        cost: &Cost::default(),
    };
    report.write_human(&mut out).expect("a vector");
    String::from_utf8(out).expect("text")
}

#[test]
fn an_empty_report_says_what_left_its_waits_out() {
    for (options, said) in [
        ("offcputime", "all were below 1 us (-m 0 shows them)"),
        ("offcputime -m 500", "-m 500 left out all"),
        (
            "offcputime -m 5 -M 9 --state 2",
            "-m 5 and -M 9 and --state 2 left out all",
        ),
    ] {
        let report = report_of(options, &[], 3);
        let line = format!("\n\nNo wait is left of 3 waits: {said}.\n\nnext: ");
        assert!(report.contains(&line), "{report}");
    }
    assert!(report_of("offcputime", &[], 0).contains("\n\nNo thread waited.\n\n"));
}

#[test]
fn a_list_without_stacks_leaves_no_gap() {
    let idle = [("poll", 900, true)];
    let report = report_of("offcputime", &idle, 0);
    assert!(
        report.contains(" idle: 1 thread\n\n[idle] 900 ns in 1 thread"),
        "{report}"
    );
    let busy = [("poll", 900, false)];
    let report = report_of("offcputime --idle only", &busy, 0);
    let line = "\n\nNo thread waited with nothing to do.\n\nnext: ";
    assert!(report.contains(line), "{report}");
}

#[test]
fn the_idle_part_of_the_time_is_that_of_idle_waits_alone() {
    let report = report_of(
        "offcputime",
        &[("poll", 900, true), ("futex", 50, false)],
        0,
    );
    assert!(report.contains(" 900 ns of it idle"), "{report}");
}

#[test]
fn whoever_had_no_quota_left_before_the_window_was_not_preempted() {
    let ready = Wait {
        flags: flags::RUNNABLE,
        ..Wait::default()
    };
    let reason = |function, lacks| quota::reason(ready, function, lacks);
    assert_eq!(reason("task_work_run", true), Reason::Throttled);
    assert_eq!(reason("task_work_run", false), Reason::Preempted);
    assert_eq!(reason("exit_to_user_mode_loop", true), Reason::Preempted);
}
