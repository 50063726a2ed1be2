//! `why --slowest` against servers that know how long each request took.

use crate::prelude::*;
use crate::why::ALL;

/// The home of the program's server.
fn home<'a>(cycles: &'a Value, place: &str) -> &'a Value {
    let mut homes = list(cycles, "homes").iter();
    let home = homes.find(|home| home["place"].as_str().is_some_and(|it| it.ends_with(place)));
    home.unwrap_or_else(|| panic!("no home in {place}: {cycles:#}"))
}

/// The part of a group's cycles that a line has, from 0 to 1.
fn share(cycles: &Value, group: &str, (kind, place): (&str, &str)) -> f64 {
    let is_it = |line: &&Value| {
        let is_there = line["place"].as_str().unwrap_or("").ends_with(place);
        line["kind"] == kind && is_there
    };
    let lines = list(cycles, "lines").iter().filter(is_it);
    let ns: u64 = lines.map(|line| number(line, &format!("{group}_ns"))).sum();
    ns as f64 / number(&cycles[group], "mean_ns") as f64
}

/// Requests of a log, the slowest first, that began and ended in the window.
pub(crate) fn logged(report: &Value, results: &[Value]) -> Vec<Value> {
    let window = number(report, "start_ns")..=number(report, "end_ns");
    let is_inside = |one: &Value| {
        let begin_ns = number(one, "begin_ns");
        window.contains(&begin_ns) && window.contains(&(begin_ns + number(one, "ns")))
    };
    let mut all = list(&results[0], "cycles").to_vec();
    all.retain(is_inside);
    all.sort_by_key(|one| std::cmp::Reverse(number(one, "ns")));
    all
}

/// The length that so many of a hundred do not exceed.
pub(crate) fn percentile(log: &[Value], field: &str, percent: usize) -> u64 {
    let mut all: Vec<u64> = log.iter().map(|one| number(one, field)).collect();
    all.sort_unstable();
    all[(all.len() * percent).div_ceil(100) - 1]
}

/// The plant's part of a group of requests, and the tool's: what was waited for a CPU after a wait is the clock's alone.
fn assert_composed(cycles: &Value, group: &str, requests: &[Value]) {
    let all: u64 = requests.iter().map(|one| number(one, "ns")).sum();
    let queue = share(cycles, group, ("run-queue", ""));
    for (field, kind, place) in [
        ("nap_ns", "sleep", "nanosleep"),
        ("lock_ns", "futex", "take_the_lock"),
    ] {
        let planted: u64 = requests.iter().map(|one| number(one, field)).sum();
        let planted = planted as f64 / all as f64;
        let found = share(cycles, group, (kind, place));
        let bounds = planted - queue - 0.02..=planted + 0.02;
        assert_within(format!("{group}: {field}, share"), found, bounds, cycles);
    }
}

#[test]
fn each_request_is_a_cycle_and_the_slow_ones_say_what_they_waited_for() {
    let _machine = Machine::alone();
    let options = format!("--slowest 1% {ALL}");
    let workload = Workload::start("requests", "--number 1001");
    let (report, results) = traced("why", &options, workload);
    let cycles = &report["cycles"];
    let server = home(cycles, "::next");
    let log = logged(&report, &results);
    let count = log.len() as u64;
    assert_within("requests in the window", count, 990..=1001, &report);
    assert_eq!(number(server, "count"), count, "{cycles:#}");
    assert_eq!(cycles["homes"][0], *server, "has most work: {cycles:#}");

    // It begins where the server is woken: after the client's word, before the server has it.
    for (what, percent) in [("p50_ns", 50), ("p99_ns", 99), ("max_ns", 100)] {
        let [least, most] = ["served_ns", "ns"].map(|field| percentile(&log, field, percent));
        let bounds = least - least * 32 / 1000..=most + most * 32 / 1000;
        assert_within(what, number(server, what), bounds, cycles);
    }

    let slow = count.div_ceil(100);
    assert_eq!(number(&cycles["slowest"], "count"), slow, "{cycles:#}");
    assert_eq!(
        number(&cycles["others"], "count"),
        count - slow,
        "{cycles:#}"
    );
    let (slowest, others) = log.split_at(log.len().div_ceil(100));
    assert_composed(cycles, "slowest", slowest);
    assert_composed(cycles, "others", others);
    let is_locks = |line: &&Value| line["lock"].is_string();
    let of_locks = list(cycles, "lines").iter().filter(is_locks);
    assert_eq!(
        of_locks.count(),
        1,
        "one lock, by two functions: {cycles:#}"
    );
    // Each group's function has by far the most of its time on CPUs: more than nine parts of ten, more than eight.
    for (group, function) in [("slowest", "scan"), ("others", "compute")] {
        let [its, all] = [function, ""].map(|place| share(cycles, group, ("on-cpu", place)));
        assert_within(format!("{group}: {function}"), its / all, 0.5..=1.0, cycles);
    }

    let exemplars = list(&cycles["slowest"], "cycles");
    assert_eq!(exemplars.len(), 5, "{cycles:#}");
    for (one, request) in exemplars.iter().zip(&log) {
        assert_eq!(one["tid"], results[0]["tid"], "{one:#}");
        let lines = list(one, "lines");
        assert_eq!(sum(lines, "ns"), number(one, "ns"), "{one:#}");
        let near = number(request, "ns") * 32 / 1000;
        let off = number(one, "ns").abs_diff(number(request, "ns"));
        assert_within("off, ns", off, 0..=near, one);
    }
}
