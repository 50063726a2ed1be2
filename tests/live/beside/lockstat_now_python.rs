//! `lockstat --now` on programs in Python whose threads wait for each other for ever, and know which.

use crate::beside::interpreters::{interpreters, place, python_program};
use crate::beside::lockstat_now::{Stuck, now, told};
use crate::prelude::*;

const PROGRAM: &str = "stuck.py";
/// Threads of the ring, and those that wait behind a thread that sleeps, or waits for a condition.
const RING: usize = 3;
const BEHIND: usize = 10;
/// Threads that wait for conditions, and for work.
const EVENTS: u64 = 3;

/// Class, place and holder of every wait are as the program knows them: holders in `with` blocks are known, whatever the frames had on
/// their stacks before, and nobody else is named.
#[test]
fn locks_of_python_are_held_by_who_is_in_their_blocks() {
    let _machine = Machine::beside();
    for python in interpreters() {
        let stuck = Stuck::of(python_program(&python, PROGRAM));
        let report = stuck.now();
        let waits = list(&report, "waits");
        assert_eq!(waits.len(), RING + BEHIND, "{python}: {report:#}");
        for wait in waits {
            let known = &stuck.known[&number(wait, "tid")];
            let line = place(PROGRAM, text(known, "line"));
            let name = format!("in stuck.{} ({line})", text(known, "function"));
            assert_eq!(wait["class"], "Python lock", "{python}: {wait:#}");
            assert_eq!(wait["lock"], name, "{python}: {wait:#}");
            let (kind, holder) = match number(known, "holder") {
                0 => ("unrecorded", &Value::Null),
                _ => ("thread", &known["holder"]),
            };
            assert_eq!(wait["holder"]["kind"], kind, "{python}: {wait:#}");
            assert_eq!(&wait["holder"]["tid"], holder, "{python}: {wait:#}");
        }
        assert_eq!(number(&report, "events"), EVENTS, "{python}: {report:#}");
        stuck.assert_circle(only(&report, "deadlocks"), RING);
        let told = told(stuck.workload.pid());
        assert!(told.contains("DEADLOCK: 3 threads of process"), "{told}");
        let line = place(PROGRAM, "with other.lock:");
        let turn = known_function(&stuck, "with other.lock:");
        assert!(told.contains(&format!("stuck.{turn} ({line})")), "{told}");
    }
}

/// The function of a thread that waits in such a line: versions before 3.11 know no qualified names.
fn known_function<'a>(stuck: &'a Stuck, line: &str) -> &'a str {
    let mut waits = stuck.known.values();
    let wait = waits.find(|wait| wait["line"] == line);
    text(wait.expect("a thread of the ring"), "function")
}

const HANDED_ON: &str = "handed_on.py";

/// However soon a wait is over: two are under way at every moment, and looks go on until one lasts. A holder is none of those that wait, and
/// nobody is in a deadlock.
#[test]
fn a_lock_of_python_that_is_handed_on_all_the_time_is_waited_for() {
    let _machine = Machine::beside();
    for python in interpreters() {
        let mut workload = python_program(&python, HANDED_ON);
        workload.work();
        let report = now(workload.pid());
        let waits = list(&report, "waits");
        assert!(!waits.is_empty(), "{python}: {report:#}");
        assert_eq!(report["waiting"], waits.len(), "{python}: {report:#}");
        assert_eq!(list(&report, "deadlocks").len(), 0, "{python}: {report:#}");
        let name = format!("in handed_on.hold ({})", place(HANDED_ON, "with lock:"));
        let waiters: Vec<u64> = waits.iter().map(|wait| number(wait, "tid")).collect();
        for wait in waits {
            assert_eq!(wait["class"], "Python lock", "{python}: {wait:#}");
            assert_eq!(wait["lock"], name, "{python}: {wait:#}");
            let holder = wait["holder"]["tid"].as_u64();
            let waits_itself = holder.is_some_and(|holder| waiters.contains(&holder));
            assert!(!waits_itself, "{python}: {report:#}");
        }
        workload.finish();
    }
}
