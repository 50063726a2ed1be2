//! Python without any flag: functions where the interpreter's loop stood, on a CPU and off it, by the program's own account and the
//! kernel's.

use std::fs;
use std::process::Command;

use crate::beside::interpreters::{Traced, assert_share, source, trace};
use crate::beside::symbols::{name, stacks};
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::ticks::{assert_ticks, moments};

/// The system's own.
pub(super) const PYTHON: &str = "/usr/bin/python3";
const MAIN: [&str; 3] = ["plain.<module>", "plain.main", "plain.timed"];
const THREAD: [&str; 3] = [
    "threading.Thread._bootstrap",
    "threading.Thread._bootstrap_inner",
    "threading.Thread.run",
];
/// Functions of `plain.py` that compute, from `timed` on.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "property",
        &[
            "plain.<lambda>",
            "plain.Worker.crunched",
            "plain.Worker.crunch",
            "plain.spin",
        ],
    ),
    ("generator", &["plain.drain", "plain.numbers", "plain.spin"]),
    (
        "comprehension",
        &[
            "plain.squares",
            "plain.squares.<locals>.<listcomp>",
            "plain.spin",
        ],
    ),
    (
        "key",
        &["plain.ranked", "plain.ranked.<locals>.weigh", "plain.spin"],
    ),
    (
        "task",
        &[
            "plain.work_in_task",
            "asyncio.runners.run",
            "asyncio.runners.Runner.run",
            "asyncio.base_events.BaseEventLoop.run_until_complete",
            "asyncio.base_events.BaseEventLoop.run_forever",
            "asyncio.base_events.BaseEventLoop._run_once",
            "asyncio.events.Handle._run",
            "plain.work_in_task.<locals>.crawl",
            "plain.spin",
        ],
    ),
];

fn plain() -> Workload {
    run("plain.py")
}

fn run(program: &str) -> Workload {
    let mut command = Command::new(PYTHON);
    command.arg("-I").arg(source(program));
    Workload::spawn("python", command)
}

pub(super) fn of_text(program: &str) -> Workload {
    let mut command = Command::new(PYTHON);
    command.args(["-I", "-c", program]);
    Workload::spawn("python", command)
}

/// Python functions of a stack, root first.
pub(super) fn functions(stack: &Value) -> Vec<&str> {
    let frames = list(stack, "user").iter();
    frames
        .filter(|frame| frame["kind"] == "jit")
        .map(name)
        .collect()
}

/// All of them.
fn is_chain(stack: &Value, chain: &[&[&str]]) -> bool {
    functions(stack) == chain.concat()
}

/// The program's function of each frame with a line is the one that has this line.
fn assert_lines(report: &Value) {
    let text = fs::read_to_string(source("plain.py")).expect("the program");
    let lines: Vec<&str> = text.lines().collect();
    let words = [
        ("plain.sleepy.<locals>.nap", "time.sleep(NAP_S)"),
        ("plain.numbers", "yield spin("),
        ("plain.Worker.crunch", "self.total += spin("),
        ("plain.ranked.<locals>.weigh", "return spin("),
        ("plain.sleepy", "nap()"),
        ("plain.<module>", "main()"),
    ];
    for (function, word) in words {
        let frames = stacks(report).iter().flat_map(|stack| list(stack, "user"));
        let mut own = frames.filter(|frame| frame["kind"] == "jit" && name(frame) == function);
        let own = own.find(|frame| text_of(frame, "file").ends_with("plain.py"));
        let Some(frame) = own else { continue };
        let line = usize::try_from(number(frame, "line")).expect("a line");
        assert!(lines[line - 1].contains(word), "{function}: line {line}");
    }
}

pub(super) fn text_of<'a>(frame: &'a Value, field: &str) -> &'a str {
    frame[field].as_str().unwrap_or_default()
}

/// Nobody runs meanwhile: BPF does not see their stacks, the tool walks them.
fn assert_asleep(workload: &Workload) {
    let asleep = Tool::run("offcputime", format!("-j -p {} 0.2", workload.pid()));
    let asleep = asleep.ok().report();
    let wait: &[&str] = &[
        "plain.wait_for",
        "threading.Semaphore.acquire",
        "threading.Condition.wait",
    ];
    let in_place = |stack: &Value| {
        stack["user_end"] == "root"
            && (is_chain(stack, &[&MAIN[..2]]) || is_chain(stack, &[&THREAD, wait]))
    };
    assert_eq!(stacks(&asleep).len(), 2, "{asleep}");
    assert_share(&asleep, "asleep throughout", 1.0, |_| true, in_place);
}

/// Every stack goes up to the thread's first function, and every function has its name.
fn assert_reports(traced: &Traced) {
    let is_complete = |stack: &Value| {
        let first = functions(stack).first().copied();
        stack["user_end"] == "root" && [Some(MAIN[0]), Some(THREAD[0])].contains(&first)
    };
    for report in [&traced.samples, &traced.waits] {
        assert_share(report, "complete", 0.99, |_| true, is_complete);
        for loss in [
            "cut",
            "unreadable",
            "unmatched",
            "replaced",
            "unread",
            "full",
        ] {
            let nameless = stacks(report).iter().map(functions);
            let mut nameless =
                nameless.filter(|names| names.iter().any(|name| name.starts_with('[')));
            let loss = &report["losses"][format!("python_{loss}")];
            assert_eq!(*loss, 0, "{:?}", nameless.next());
        }
        assert_lines(report);
    }
}

/// Samples of each kind are as many as there were ticks, in its functions.
fn assert_samples(traced: &Traced) {
    let tid = id(&traced.said, "tid");
    let samples = moments(&traced.moments, tid);
    for (kind, chain) in KINDS {
        let said = &traced.said[kind];
        let when = number(said, "start_ns")..number(said, "end_ns");
        let of_kind = samples.iter().filter(|one| when.contains(&one.ns));
        assert_ticks(of_kind.clone().count() as u64, &traced.ticks, tid, &when);
        let chain: Vec<&str> = [&MAIN[..], chain].concat();
        let is_there = |function: &&str| chain.contains(function);
        // Between two calls of its last function the program is in those that called it, the longer the less of the work is there.
        let places = of_kind.map(|one| {
            let from_root = one.functions.iter().rev().map(String::as_str);
            from_root.filter(is_there).collect::<Vec<_>>()
        });
        let places: Vec<Vec<&str>> = places.collect();
        let whole = places.iter().filter(|place| **place == chain).count();
        let right = places
            .iter()
            .filter(|place| chain.starts_with(place))
            .count();
        let share = |part: usize| part as f64 / places.len() as f64;
        assert_within(format!("{kind}, whole"), share(whole), 0.9.., places.len());
        assert_within(kind, share(right), 0.97.., places.len());
    }
}

/// Sleeps are those of the log, and of the program's clock.
fn assert_naps(traced: &Traced) {
    let tid = id(&traced.said, "tid");
    let naps = &traced.said["naps"];
    let when = number(naps, "start_ns")..number(naps, "end_ns");
    let times = Times::in_report(&traced.waits, &traced.logs, tid.into(), sees_hidden());
    let asleep = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&when));
    let is_nap = |stack: &Value| {
        is_chain(
            stack,
            &[&MAIN, &["plain.sleepy", "plain.sleepy.<locals>.nap"]],
        ) && stack["reason"] != "preempted"
    };
    assert!(asleep.count >= 12, "{}", traced.said);
    times.assert_inside(&asleep, is_nap);
    let wall = when.end - when.start;
    let own: u64 = stacks(&traced.waits)
        .iter()
        .filter(|stack| is_nap(stack))
        .map(weight)
        .sum();
    assert_within("naps", own, wall * 98 / 100..=wall, &traced.said);
}

/// Waits for the lock are as long as the thread says.
fn assert_locks(traced: &Traced) {
    let in_lock = |stack: &Value| is_chain(stack, &[&THREAD, &["plain.wait_for"]]);
    let own: u64 = stacks(&traced.waits)
        .iter()
        .filter(|stack| in_lock(stack))
        .map(weight)
        .sum();
    let locked = number(&traced.said, "locked_ns");
    assert_within(
        "waits for the lock",
        own,
        locked * 98 / 100..=locked * 102 / 100,
        &traced.said,
    );
}

/// Sleeps and waits for a lock are as long as by the clock of the program, which has to have a CPU when it wants one.
#[test]
fn functions_stand_where_the_loop_stood() {
    let _machine = Machine::alone();
    let workload = plain();
    assert_asleep(&workload);
    let traced = trace(workload, || ());
    assert_reports(&traced);
    assert_samples(&traced);
    assert_naps(&traced);
    assert_locks(&traced);
}

/// Its home is the function of the program's own that the thread comes back to, though the standard library has others inside.
#[test]
fn an_event_loop_is_idle_at_home_and_not_in_its_database() {
    let _machine = Machine::beside();
    let (report, said) = traced("offcputime", "-m 0", run("event_loop.py"));
    let waits = |reason: &str| {
        let all: Vec<_> = stacks(&report)
            .iter()
            .filter(|stack| stack["reason"] == reason)
            .collect();
        let idle = all
            .iter()
            .filter(|stack| stack["idle"] == true)
            .map(|stack| weight(stack));
        (
            idle.sum::<u64>(),
            all.iter().map(|stack| weight(stack)).sum::<u64>(),
        )
    };
    let (idle, all) = waits("epoll");
    assert!(
        all > 0 && idle * 100 >= all * 99,
        "{idle} of {all}: {report:#}"
    );
    let asked_ns = number(&said[0], "asked_ns");
    let (idle, all) = waits("socket");
    // All else of it the thread had a CPU, or wanted one.
    let else_ns = waits("preempted").1 + number(&report, "accounting.oncpu_ns");
    assert_within("asked", all, asked_ns - else_ns..=asked_ns, &report);
    assert_eq!(idle, 0, "{report:#}");
}

#[test]
fn the_loop_stays_below_its_functions_where_it_is_asked_for() {
    let _machine = Machine::beside();
    let program = "import os, time\n\
        def nap():\n    \
            time.sleep(600)\n\
        print('ready', os.getpid(), flush=True)\n\
        nap()\n";
    let workload = of_text(program);
    let frames = |option: &str| -> Vec<String> {
        let args = format!("-j {option} -p {} 0.2", workload.pid());
        let report = Tool::run("offcputime", args).ok().report();
        let frames = list(only(&report, "stacks"), "user").iter();
        frames.map(|frame| name(frame).to_owned()).collect()
    };
    let is_loop = |name: &&String| **name == "_PyEval_EvalFrameDefault";
    let plain = frames("");
    assert_eq!(plain.iter().find(is_loop), None);
    let native = frames("--native");
    let at = native.iter().position(|name| is_loop(&name));
    let at = at.unwrap_or_else(|| panic!("no loop: {native:?}"));
    assert_eq!(native[at + 1..at + 3], ["<module>", "nap"]);
    let rest: Vec<&String> = native.iter().filter(|name| !is_loop(name)).collect();
    assert!(rest.iter().copied().eq(&plain), "{native:?}, {plain:?}");
}

/// A program that says that it is an interpreter, and is none, is not walked: its stacks are native, and the tool says so.
#[test]
fn a_program_that_plays_an_interpreter_stays_native() {
    const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
const unsigned long Py_Version = 0x030b02f0;
char _PyRuntime[65536], PyCode_Type[512], PyFrame_Type[512];
__attribute__((noinline)) int _PyEval_EvalFrameDefault(void)
{
	char word[8];

	return read(0, word, sizeof(word)) > 0;
}
int PyGILState_GetThisThreadState(void)
{
	return 0;
}
int main(void)
{
	memset(_PyRuntime, 0x41, sizeof(_PyRuntime));
	memset(PyCode_Type, 0x7f, sizeof(PyCode_Type));
	for (int i = 0; i < 512; i += 8) {
		void *self = PyFrame_Type;

		memcpy(PyFrame_Type + i, &self, 8);
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	return _PyEval_EvalFrameDefault();
}
"#;
    let _machine = Machine::beside();
    let program = Program::c("python3", SOURCE, "-O1 -rdynamic");
    let workload = Workload::spawn("python", program.command(""));
    let report = Tool::run("offcputime", format!("-v -j -p {} 0.2", workload.pid())).ok();
    let stderr = report.stderr.clone();
    let report = report.report();
    let stack = only(&report, "stacks");
    let names: Vec<&str> = list(stack, "user").iter().map(name).collect();
    assert!(names.contains(&"_PyEval_EvalFrameDefault"), "{names:?}");
    assert!(functions(stack).is_empty(), "{names:?}");
    assert!(stderr.contains("1 not walked"), "{stderr}");
}
