//! lockstat's account of Python's locks, without any flag: the one that an interpreter's threads take turns with, and those of its
//! programs, by the program's own word and the kernel's.

use crate::beside::interpreters::{interpreters, place, python_program};
use crate::prelude::*;
use crate::why::ALL;

/// Time after which a thread that waits for the interpreter tries again; what keeps it waiting takes twenty times as long.
const TRY_NS: u64 = 5_000_000;

/// The locks of a report that are called so.
fn called<'a>(report: &'a Value, class: &str, name: &str) -> Vec<&'a Value> {
    let locks = list(report, "locks").iter();
    let is_it = |lock: &&Value| lock["class"] == class && text(lock, "name") == name;
    locks.filter(is_it).collect()
}

/// A field of all waits of a thread, summed.
fn of_thread(locks: &[&Value], tid: u64, field: &str) -> u64 {
    let waiters = locks.iter().flat_map(|lock| list(lock, "waiters"));
    let own = waiters.filter(|waiter| number(waiter, "tid") == tid);
    own.map(|waiter| number(waiter, field)).sum()
}

/// Each wait takes many tries, and is one.
fn assert_global_lock(report: &Value, said: &Value, pid: u32) {
    let (clerk, rounds) = (number(said, "clerk"), number(said, "rounds"));
    let first = &list(report, "locks")[0];
    let name = text(first, "name");
    assert!(
        name.starts_with("GIL of ") && name.ends_with(&format!(" {pid}")),
        "{name}"
    );
    let gils = called(report, "gil", name);
    assert_eq!(
        (gils.len(), &first["class"]),
        (1, &"gil".into()),
        "{report:#}"
    );
    // It also waits a little where it reads what the kernel says of it, and where it gives the interpreter away.
    let waits = list(first, "waiters").iter().filter(|waiter| {
        number(waiter, "tid") == clerk
            && text(waiter, "caller").ends_with("serve (gil.py)")
            && number(waiter, "max_ns") > 10 * TRY_NS
    });
    let own_ns = |waiter: &Value| number(waiter, "total_ns") - number(waiter, "runqueue_ns");
    let waited_ns: u64 = waits.clone().map(own_ns).sum();
    let truth_ns = number(said, "waited_ns");
    // Each try's way out of its call is part of the wait, and costs CPU time.
    let most_ns = truth_ns + number(said, "tries_ns");
    let bounds = truth_ns * 98 / 100..=most_ns * 102 / 100;
    assert_within("waits for the interpreter", waited_ns, bounds, first);
    let long: u64 = waits.map(|waiter| number(waiter, "count")).sum();
    assert_eq!(long, rounds, "{first:#}");
    assert_eq!(number(first, "gave_up"), 0, "{first:#}");
}

/// The thread that computes has it while the other waits, by the lock's own word where it has a thread's number.
fn assert_holder(report: &Value, said: &Value, known_as: &str) {
    let first = &list(report, "locks")[0];
    let waited_ns = of_thread(&[first], number(said, "clerk"), "total_ns");
    let holders = list(first, "holders").iter();
    let main = holders.filter(|holder| holder["tid"] == said["tid"]);
    let main = main.filter(|holder| holder["known_as"] == known_as);
    let main_ns: u64 = main.map(|holder| number(holder, "caused_ns")).sum();
    // A try that ended by itself just when the lock was given away has no giver.
    let least_ns = if known_as == "owner" {
        waited_ns * 98 / 100
    } else {
        1
    };
    let bounds = least_ns..=waited_ns;
    assert_within("waits for the one that computes", main_ns, bounds, first);
}

/// A program's lock is waited for once a round, and called by who waits.
fn assert_own_lock(report: &Value, said: &Value) {
    let (clerk, rounds) = (number(said, "clerk"), number(said, "rounds"));
    let name = format!(
        "in gil.{} ({})",
        text(said, "function"),
        place("gil.py", "self.asked.acquire()")
    );
    let locks = called(report, "python-lock", &name);
    assert_eq!(
        of_thread(&locks, clerk, "count"),
        rounds,
        "{name}: {report:#}"
    );
    let holders = locks.iter().flat_map(|lock| list(lock, "holders"));
    for holder in holders {
        assert_eq!(holder["tid"], said["tid"], "{holder:#}");
    }
}

/// Versions keep the lock in different places, and the oldest have no numbers of threads, so that who gives it away had it.
#[test]
fn a_thread_waits_for_the_interpreter_and_for_a_lock() {
    let _machine = Machine::alone();
    for python in interpreters() {
        let workload = python_program(&python, "gil.py");
        let pid = workload.pid();
        let (report, said) = traced("lockstat", "", workload);
        let said = &said[0];
        assert_global_lock(&report, said, pid);
        let has_numbers = said["has_numbers"] == true;
        assert_holder(&report, said, if has_numbers { "owner" } else { "waker" });
        assert_own_lock(&report, said);
    }
}

/// The kernel sees waits on a condition variable, at which a thread may have nothing to do.
#[test]
fn waits_for_the_interpreter_are_a_reason_and_no_idleness() {
    let _machine = Machine::alone();
    for python in interpreters() {
        let workload = python_program(&python, "gil.py");
        let (report, said) = traced("offcputime", "", workload);
        let said = &said[0];
        let stacks = list(&report, "stacks").iter();
        let own = stacks.filter(|stack| stack["tid"] == said["clerk"] && stack["reason"] == "gil");
        let in_function = |stack: &&Value, name: &str| {
            let frames = list(stack, "user").iter();
            let mut names = frames.map(|frame| text(frame, "name"));
            names.any(|found| found.ends_with(name))
        };
        let served =
            own.filter(|stack| in_function(stack, "serve") && !in_function(stack, "schedule"));
        let served: Vec<&Value> = served.collect();
        let is_idle = |stack: &&Value| stack.get("idle").is_some();
        assert!(!served.iter().any(is_idle), "{python}: {report:#}");
        let blocked_ns: u64 = served.iter().map(|stack| number(stack, "values.0")).sum();
        let waited_ns = number(said, "waited_ns");
        // Each try's way out of its call is part of the wait, and costs CPU time.
        let most_ns = waited_ns + number(said, "tries_ns");
        let bounds = waited_ns * 98 / 100..=most_ns * 102 / 100;
        assert_within(format!("{python}: gil, ns"), blocked_ns, bounds, said);

        let workload = python_program(&python, "gil.py");
        let pid = workload.pid();
        let (report, said) = traced("why", ALL, workload);
        let line = largest_of_interpreter(&report);
        let name = text(line, "lock.name");
        assert!(
            name.starts_with("GIL of ") && name.ends_with(&format!(" {pid}")),
            "{line:#}"
        );
        assert_eq!(line["busy"], true, "{line:#}");
        let waited_ns = number(&said[0], "waited_ns");
        assert_within(
            format!("{python}: why, ns"),
            number(line, "ns"),
            waited_ns * 98 / 100..,
            line,
        );
    }
}

/// The largest line of waits for an interpreter.
fn largest_of_interpreter(report: &Value) -> &Value {
    let lines = list(report, "lines").iter();
    let largest = lines
        .filter(|line| line["kind"] == "gil")
        .max_by_key(|line| number(line, "ns"));
    largest.unwrap_or_else(|| panic!("no wait for an interpreter: {report:#}"))
}
