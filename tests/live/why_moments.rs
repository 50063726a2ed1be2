//! The line of time of why: when a program that says when it computed had a CPU.

use crate::c_program::BURN;
use crate::kernel::until_every;
use crate::prelude::*;
use crate::ticks::{assert_ticks, clock};
use crate::why::ALL;

/// Samples of each CPU in a second, as why takes them.
const HERTZ: u64 = 499;

#[test]
fn moments_have_the_samples_of_their_own_time() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("why.html");
    let mut workload = Workload::start("bursts", "--bursts 3 --millis 250");
    let args = format!("-j {ALL} -p {} -o {}", workload.pid(), page.display());
    let tool = Tool::attached("why", args);
    let clock = clock(HERTZ);
    let results = workload.work();
    let report = tool.report();
    let ticks = clock.take().expect("a whole log");
    workload.finish();

    let tid = id(&results[0], "tid");
    let moments = list(&report, "timeline");
    let logged = number(&list(&results[0], "bursts")[0], "begin_ns")
        ..=number(
            list(&results[0], "bursts").last().expect("a burst"),
            "end_ns",
        );
    let mut computed = 0;
    for moment in moments {
        let when = number(moment, "start_ns")..number(moment, "end_ns");
        let seconds = (when.end - when.start) as f64 / 1e9;
        let cpus = moment["on_cpus"].as_f64().expect("a number of CPUs");
        let samples = cpus * seconds * HERTZ as f64;
        assert!(
            (samples - samples.round()).abs() < 1e-6,
            "whole samples: {moment:#}"
        );
        // Before and after its bursts the program starts and ends, which the clock need not have seen whole.
        if logged.contains(&when.start) && logged.contains(&when.end) {
            assert_ticks(samples.round() as u64, &ticks, tid, &when);
            computed += 1;
        }
        let busy = moment["cpus_busy"].as_f64().expect("a share");
        // The kernel's account has ticks, of which one may be the next moment's.
        let least = (cpus - 0.2).max(0.0) / number(&report, "cost.cpus") as f64;
        assert_within("busy", busy, least..=1.0, moment);
    }
    assert!(computed >= 3, "of 750 ms: {moments:#?}");
    for two in moments.windows(2) {
        assert_eq!(two[0]["end_ns"], two[1]["start_ns"]);
        let ns = number(&two[0], "end_ns") - number(&two[0], "start_ns");
        assert!(ns >= 100_000_000, "{two:#?}");
    }
    let page = std::fs::read_to_string(page).expect("a page");
    for strip in ["bursts", "all CPUs: busy"] {
        assert!(page.contains(&format!("<p><span>{strip}")), "no {strip}");
    }
}

/// A program that computes beyond the window's end: the last moment is as full as the others.
#[test]
fn the_last_moment_has_all_samples_until_the_windows_end() {
    let _machine = Machine::alone();
    let program = Program::c("burn", BURN, "");
    let mut workload = program.start("1000000");
    let tool = Tool::attached("why", format!("-j {ALL} -p {}", workload.pid()));
    let clock = clock(HERTZ);
    workload.go();
    let waited = std::time::Duration::from_millis(50);
    let begin = std::time::Instant::now();
    until_every(waited, "it computes", || begin.elapsed().as_millis() > 550);
    let report = tool.report();
    let ticks = clock.take().expect("a whole log");
    let moments = list(&report, "timeline");
    let last = moments.last().expect("a moment");
    assert_eq!(last["end_ns"], report["end_ns"]);
    let when = number(last, "start_ns")..number(last, "end_ns");
    let seconds = (when.end - when.start) as f64 / 1e9;
    let samples = last["on_cpus"].as_f64().expect("CPUs") * seconds * HERTZ as f64;
    assert_ticks(samples.round() as u64, &ticks, workload.pid(), &when);
}
