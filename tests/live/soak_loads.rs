//! Every event of a heavy load is in the report or among its losses.

use crate::prelude::*;
use crate::soak::{Load, Soaked, lost, scale};

const SWITCHES: &str = include_str!("../workloads/soak/switches.c");
const FORKS: &str = include_str!("../workloads/soak/forks.c");
const THREADS: &str = include_str!("../workloads/soak/threads.c");
const STACKS: &str = include_str!("../workloads/soak/stacks.c");
const MAPS: &str = include_str!("../workloads/soak/maps.c");

/// Events that a tool counted, whatever became of them, and how many more there may have been that the kernel hid.
type Counted = (u64, u64);

/// An interval has a hidden event where the switch to the thread was hidden, with which the interval is lost, or only the wakeup
/// before it.
fn intervals(report: &Value) -> Counted {
    let losses = ["rows_full", "unreported", "negative"];
    let filtered = number(report, "accounting.filtered");
    let counted = sum(list(report, "stacks"), "count") + filtered + lost(report, &losses);
    (counted, lost(report, &["out_of_order"]))
}

/// Sums of runqlat's groups.
fn waits(report: &Value) -> Counted {
    let counted = sum(list(report, "groups"), "count");
    (counted, lost(report, &["unseen"]))
}

/// With those that it has no room for.
fn waits_and_lost(report: &Value) -> Counted {
    let (counted, hidden) = waits(report);
    (
        counted + lost(report, &["groups_full", "buckets_full"]),
        hidden,
    )
}

/// Switches or calls of profile.
fn samples(report: &Value) -> Counted {
    let counted = sum(list(report, "stacks"), "count");
    (counted + lost(report, &["rows_full", "busy"]), 0)
}

/// The figure that is held against the load's own account; `None`: only what holds for every load.
type Count = Option<fn(&Value) -> Counted>;

/// The tool counted as many events as the load knows of, but for hidden ones, which are one in twenty at most, and at most `edges`
/// more, of how its threads begin and end.
fn assert_counted(tool: &str, (counted, hidden): Counted, soaked: &Soaked, edges: u64) {
    let slices = number(&soaked.load, "slices");
    let losses = &soaked.report["losses"];
    assert_within(format!("{tool}: hidden"), hidden, ..=slices / 20, losses);
    assert_within(tool, counted, slices - hidden..=slices + edges, losses);
}

/// Runs a load under one tool after the other; what became of each.
fn hold(load: &Load, rows: &[(&str, &str, Count)], edges: impl Fn(&Soaked) -> u64) -> Vec<Soaked> {
    let alone_ns = load.alone_ns();
    eprintln!("{:.0} a second", 1e9 / alone_ns);
    let run = |(tool, options, count): &(&str, &str, Count)| {
        let soaked = load.under(tool, options, alone_ns);
        if let Some(count) = count {
            assert_counted(tool, count(&soaked.report), &soaked, edges(&soaked));
        }
        soaked
    };
    rows.iter().map(run).collect()
}

/// Times that the main thread ran while it waited for the others, by the kernel's account.
fn looks(soaked: &Soaked) -> u64 {
    number(&soaked.load, "looks")
}

#[test]
fn a_storm_of_switches_is_counted_to_the_last() {
    let _machine = Machine::alone();
    let load = Load::new("switches", SWITCHES, &[(1000 * scale()).to_string()]);
    let rows: [(&str, &str, Count); 6] = [
        ("offcputime", "-p PID", Some(intervals)),
        ("runqlat", "-p PID", Some(waits)),
        ("profile", "-e context-switches -c 1 -p PID", Some(samples)),
        ("lockstat", "-p PID", None),
        ("pressure", "-s", None),
        ("biolatency", "-Q", None),
    ];
    hold(&load, &rows, |soaked| {
        8 * number(&soaked.load, "threads") + looks(soaked)
    });
}

#[test]
fn a_storm_of_processes_is_counted_to_the_last() {
    let _machine = Machine::alone();
    let count = 10_000 * scale();
    let load = Load::new("forkstorm", FORKS, &[count.to_string()]);
    let rows: [(&str, &str, Count); 5] = [
        ("offcputime", "--comm forkstorm", None),
        ("runqlat", "-P --comm forkstorm", Some(waits_and_lost)),
        ("profile", "-F 997 --comm forkstorm", None),
        ("lockstat", "--comm forkstorm", None),
        ("pressure", "-s", None),
    ];
    // The parent's own, two waits of its at most for each child.
    let offcputime = &hold(&load, &rows, |_| 3 * count)[0].report;
    let threads = number(offcputime, "accounting.threads");
    let lost = lost(offcputime, &["members_lost"]);
    assert_eq!(threads + lost, count + 1, "{}", offcputime["losses"]);
}

#[test]
fn code_that_comes_and_goes_throughout() {
    let _machine = Machine::alone();
    let count = 50_000 * scale();
    let load = Load::new("maps", MAPS, &[count.to_string()]);
    let alone_ns = load.alone_ns();
    let soaked = load.under("offcputime", "-m 0 -p PID", alone_ns);
    // Its beginning and its end.
    assert_counted("offcputime", intervals(&soaked.report), &soaked, 8);

    let calls = "-e tracepoint:syscalls:sys_enter_nanosleep -c 1 -p PID";
    let soaked = load.under("profile", calls, alone_ns);
    assert_eq!(
        samples(&soaked.report),
        (count, 0),
        "{}",
        soaked.report["losses"]
    );
}

/// `make soak` has 20,000.
#[test]
fn threads_by_the_thousand_are_counted_to_the_last() {
    let _machine = Machine::alone();
    let count = (2000 * scale()).min(20_000);
    let load = Load::new("threads", THREADS, &[count.to_string(), "20".into()]);
    let switches = "--threads -e context-switches -c 1 -p PID";
    let rows: [(&str, &str, Count); 5] = [
        ("offcputime", "-p PID", Some(intervals)),
        ("runqlat", "-L -p PID", Some(waits_and_lost)),
        ("profile", switches, Some(samples)),
        ("lockstat", "-p PID", None),
        ("pressure", "-s", None),
    ];
    hold(&load, &rows, |soaked| 5 * count + looks(soaked));
}

/// `make soak` has 100,000.
#[test]
fn stacks_by_the_ten_thousand_are_counted_to_the_last() {
    let _machine = Machine::alone();
    let count = 10_000 * scale();
    let load = Load::new("stacks", STACKS, &[count.to_string()]);
    let rows: [(&str, &str, Count); 2] = [
        ("offcputime", "-m 0 -p PID", Some(intervals)),
        ("profile", "-e context-switches -c 1 -p PID", Some(samples)),
    ];
    // Beginnings and ends of both threads, too.
    for soaked in hold(&load, &rows, |soaked| 10 + looks(soaked)) {
        let stacks = list(&soaked.report, "stacks").len() as u64;
        let losses = ["rows_full", "stack_table_full", "stack_ring_full"];
        let lost = lost(&soaked.report, &losses);
        assert_within("stacks", stacks + lost, count.., &soaked.report["losses"]);
    }
}
