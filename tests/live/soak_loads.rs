//! Every event of a heavy load is in the report or among its losses.

use crate::kernel::alone;
use crate::soak::{Load, lost, scale, sum};
use crate::workload::number;

const SWITCHES: &str = include_str!("../workloads/soak/switches.c");
const FORKS: &str = include_str!("../workloads/soak/forks.c");
const THREADS: &str = include_str!("../workloads/soak/threads.c");
const STACKS: &str = include_str!("../workloads/soak/stacks.c");
const MAPS: &str = include_str!("../workloads/soak/maps.c");

/// What offcputime counted, whatever became of it.
fn intervals(report: &serde_json::Value) -> u64 {
    sum(report, "stacks", "count", |_| true)
        + number(report, "accounting.filtered")
        + lost(
            report,
            &["rows_full", "unreported", "out_of_order", "negative"],
        )
}

#[test]
fn a_storm_of_switches_is_counted_to_the_last() {
    let Some(_machine) = alone() else {
        return;
    };
    let load = Load::new("switches", SWITCHES, &[(1000 * scale()).to_string()]);
    let alone_ns = load.alone_ns();
    eprintln!("{:.0} round trips/s", 1e9 / alone_ns);
    for (tool, options) in [
        ("offcputime", "-p PID"),
        ("runqlat", "-p PID"),
        ("profile", "-e context-switches -c 1 -p PID"),
        ("lockstat", "-p PID"),
        ("pressure", "-s"),
        ("biolatency", "-Q"),
    ] {
        let soaked = load.under(tool, options, alone_ns);
        let report = &soaked.report;
        let seen = match tool {
            "offcputime" => intervals(report),
            "runqlat" => sum(report, "groups", "count", |_| true),
            "profile" => {
                sum(report, "stacks", "count", |_| true) + lost(report, &["rows_full", "busy"])
            }
            _ => continue,
        };
        let slices = number(&soaked.load, "slices");
        // The main thread's looks at the clock, and how each thread begins and ends.
        let edges = 8 * number(&soaked.load, "threads") + number(&soaked.load, "wall_ns") / 500_000;
        assert!(
            (slices..=slices + edges).contains(&seen),
            "{tool}: {seen} of {slices}"
        );
    }
}

#[test]
fn a_storm_of_processes_is_counted_to_the_last() {
    let Some(_machine) = alone() else {
        return;
    };
    let count = 10_000 * scale();
    let load = Load::new("forkstorm", FORKS, &[count.to_string()]);
    let alone_ns = load.alone_ns();
    eprintln!("{:.0} processes/s", 1e9 / alone_ns);
    for (tool, options) in [
        ("offcputime", "--comm forkstorm"),
        ("runqlat", "-P --comm forkstorm"),
        ("profile", "-F 997 --comm forkstorm"),
        ("lockstat", "--comm forkstorm"),
        ("pressure", "-s"),
    ] {
        let soaked = load.under(tool, options, alone_ns);
        let report = &soaked.report;
        match tool {
            "offcputime" => {
                let threads = number(report, "accounting.threads");
                let lost = lost(report, &["members_lost"]);
                assert_eq!(threads + lost, count + 1, "{}", report["losses"]);
            }
            "runqlat" => {
                let seen = sum(report, "groups", "count", |_| true)
                    + lost(report, &["groups_full", "buckets_full", "unseen"]);
                let slices = number(&soaked.load, "slices");
                // The parent's own, two waits of its at most for each child.
                assert!(
                    (slices..=slices + 3 * count).contains(&seen),
                    "{seen} of {slices}"
                );
            }
            "profile" => {
                let samples = sum(report, "stacks", "count", |_| true);
                eprintln!(
                    "{samples} samples for {} ns",
                    number(&soaked.load, "cpu_ns")
                );
            }
            _ => {}
        }
    }
}

#[test]
fn code_that_comes_and_goes_throughout() {
    let Some(_machine) = alone() else {
        return;
    };
    let count = 50_000 * scale();
    let load = Load::new("maps", MAPS, &[count.to_string()]);
    let alone_ns = load.alone_ns();
    for (tool, options) in [
        ("offcputime", "-m 0 -p PID"),
        (
            "profile",
            "-e tracepoint:syscalls:sys_enter_nanosleep -c 1 -p PID",
        ),
    ] {
        let soaked = load.under(tool, options, alone_ns);
        let report = &soaked.report;
        if tool == "offcputime" {
            let (seen, slices) = (intervals(report), number(&soaked.load, "slices"));
            // A switch that a sandbox's kernel hides may cut an interval in two, or join two.
            let hidden = lost(report, &["out_of_order"]);
            // How it begins and ends.
            let may_be = slices - hidden.min(slices)..=slices + hidden + 8;
            assert!(
                may_be.contains(&seen),
                "{seen} of {slices}, {hidden} hidden"
            );
        } else {
            let seen =
                sum(report, "stacks", "count", |_| true) + lost(report, &["rows_full", "busy"]);
            assert_eq!(seen, count, "{tool}: {}", report["losses"]);
        }
    }
}

/// `make soak` has 20,000.
#[test]
fn threads_by_the_thousand_are_counted_to_the_last() {
    let Some(_machine) = alone() else {
        return;
    };
    let count = (2000 * scale()).min(20_000);
    let load = Load::new("threads", THREADS, &[count.to_string(), "20".into()]);
    let alone_ns = load.alone_ns();
    for (tool, options) in [
        ("offcputime", "-p PID"),
        ("runqlat", "-L -p PID"),
        ("profile", "--threads -e context-switches -c 1 -p PID"),
        ("lockstat", "-p PID"),
        ("pressure", "-s"),
    ] {
        let soaked = load.under(tool, options, alone_ns);
        let report = &soaked.report;
        let seen = match tool {
            "offcputime" => intervals(report),
            "runqlat" => {
                sum(report, "groups", "count", |_| true)
                    + lost(report, &["groups_full", "buckets_full", "unseen"])
            }
            "profile" => {
                sum(report, "stacks", "count", |_| true) + lost(report, &["rows_full", "busy"])
            }
            _ => continue,
        };
        let slices = number(&soaked.load, "slices");
        // How each thread begins and ends, and the main thread's looks at the clock.
        let edges = 5 * count + number(&soaked.load, "wall_ns") / 500_000;
        assert!(
            (slices..=slices + edges).contains(&seen),
            "{tool}: {seen} of {slices}, {}",
            report["losses"]
        );
    }
}

/// `make soak` has 100,000.
#[test]
fn stacks_by_the_ten_thousand_are_counted_to_the_last() {
    let Some(_machine) = alone() else {
        return;
    };
    let count = 10_000 * scale();
    let load = Load::new("stacks", STACKS, &[count.to_string()]);
    let alone_ns = load.alone_ns();
    for (tool, options) in [
        ("offcputime", "-m 0 -p PID"),
        ("profile", "-e context-switches -c 1 -p PID"),
    ] {
        let soaked = load.under(tool, options, alone_ns);
        let report = &soaked.report;
        let seen = match tool {
            "offcputime" => intervals(report),
            _ => sum(report, "stacks", "count", |_| true) + lost(report, &["rows_full", "busy"]),
        };
        let slices = number(&soaked.load, "slices");
        // How both threads begin and end, and the main thread's looks at the clock.
        let edges = 10 + number(&soaked.load, "wall_ns") / 500_000;
        assert!(
            (slices..=slices + edges).contains(&seen),
            "{tool}: {seen} of {slices}, {}",
            report["losses"]
        );
        let stacks = report["stacks"].as_array().expect("stacks").len() as u64;
        let lost = lost(
            report,
            &["rows_full", "stack_table_full", "stack_ring_full"],
        );
        assert!(
            stacks + lost >= count,
            "{tool}: {stacks} of {count}, {}",
            report["losses"]
        );
    }
}
