//! Names: programs that are gone, stripped, inlined, made at run time or visible only elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::{BURN, compile, run};
use crate::cpu_times::{stolen_samples, untaken_samples, watch_cpus};
use crate::kernel::{alone, beside};
use crate::tool::Tool;
use crate::traced::traced;
use crate::workload::{Workload, number};

pub(crate) const HERTZ: &str = "997";

/// Asks for the time in the vDSO, then reads zeros from the kernel.
const ASKS: &str = r#"
static char buffer[1 << 20];
int main(void)
{
	int zero = open("/dev/zero", O_RDONLY);
	long long start, now, mid;

	ready();
	/* By its own CPU time, however busy the machine is. */
	start = now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (; now < start + 500000000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		for (int i = 0; i < 10000; i++)
			clock_ns(CLOCK_MONOTONIC);
	start = mid = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (now = start; now < start + 300000000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		if (read(zero, buffer, sizeof(buffer)) < 0)
			return 1;
	say("{\"read_ns\": %lld}\ndone\n", now - mid);
	await_go();
}
"#;

/// Sleeps 23 times. The system call is made in the function itself: libc's wrapper would hide its caller's frame.
const WAITS: &str = r#"
static const struct timespec pause_time = { .tv_nsec = 5000000 };
__attribute__((noinline)) long wait_here(void)
{
	long result = SYS_nanosleep;

	WITH_FRAME;
	__asm__ volatile("syscall" : "+a"(result) : "D"(&pause_time), "S"(0L) : "rcx", "r11", "memory");
	return result;
}
int main(void)
{
	for (int i = 0; i < 23; i++)
		if (wait_here())
			return 1;
}
"#;

pub(crate) fn profile(args: &[&str]) -> Value {
    let all: Vec<&str> = ["-j", "-F", HERTZ]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    watch_cpus();
    let output = Command::new(crate::built("profile"))
        .args(all)
        .output()
        .expect("profile runs");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    // A command that was traced has written to the same stdout.
    let report = stdout.lines().find(|line| line.contains("\"stacks\":"));
    let report = report.unwrap_or_else(|| panic!("no report: {stdout}\n{stderr}"));
    serde_json::from_str(report).expect("JSON")
}

/// Traces a workload's work by process ID.
pub(crate) fn profile_workload(workload: Workload, tgid: u32) -> (Value, Vec<Value>) {
    traced("profile", workload, tgid, &["-F", HERTZ])
}

pub(crate) fn start(program: &Path, args: &[&str]) -> (Workload, u32) {
    let mut command = Command::new(program);
    command.args(args);
    Workload::spawn("program", command)
}

pub(crate) fn stacks(report: &Value) -> &[Value] {
    report["stacks"].as_array().expect("stacks")
}

pub(crate) fn frames<'a>(stack: &'a Value, side: &str) -> &'a [Value] {
    stack[side].as_array().expect("frames")
}

pub(crate) fn name(frame: &Value) -> &str {
    frame["name"].as_str().expect("a name")
}

/// Samples of stacks with a user frame for which this holds.
pub(crate) fn samples(report: &Value, wanted: impl Fn(&Value) -> bool) -> u64 {
    let with = stacks(report)
        .iter()
        .filter(|stack| frames(stack, "user").iter().any(&wanted));
    with.map(|stack| number(stack, "count")).sum()
}

/// Samples of CPU time that was measured otherwise: one in ten may be in other functions or at the edges.
pub(crate) fn assert_samples(found: u64, burn_ns: u64, report: &Value) {
    let truth = 997.0 * burn_ns as f64 / 1e9;
    let (untaken, stolen) = (untaken_samples(report), stolen_samples(997.0));
    let found = found as f64;
    assert!(
        (0.9 * truth - untaken..=1.1 * truth + stolen).contains(&found),
        "{found} samples, {truth}, {untaken} less to {stolen} more expected: {report:#}"
    );
}

#[test]
fn programs_that_came_and_went_during_the_run_are_named() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("plain");
    for args in [&[][..], &["--deleted-in", dir]] {
        let mut workload = Workload::start("shortlived", args);
        let tool = Tool::start("profile", &["-j", "-F", HERTZ, "--comm", "shortlived*"]);
        tool.wait_attached();
        workload.go();
        let results = workload.results();
        tool.interrupt();
        let report = serde_json::from_str(&tool.finish().stdout).expect("JSON");
        workload.finish();
        assert_eq!(results.len(), 7);
        let burnt = results.iter().map(|child| number(child, "burn_ns")).sum();
        let found = samples(&report, |frame| name(frame) == "shortlived_burn");
        assert_samples(found, burnt, &report);
        let tgids: BTreeSet<u64> = stacks(&report)
            .iter()
            .filter(|stack| {
                frames(stack, "user")
                    .iter()
                    .any(|frame| name(frame) == "shortlived_burn")
            })
            .map(|stack| number(stack, "pid"))
            .collect();
        let children = results.iter().map(|child| number(child, "pid")).collect();
        assert_eq!(tgids, children, "{args:?}");
    }
}

#[test]
fn code_made_at_run_time_has_the_names_of_its_perf_map() {
    let Some(_machine) = alone() else {
        return;
    };
    let names = ["LazyCompile:*sort app.js:7", "semi;colon \u{1b}[31m"];
    let workload = Workload::start(
        "hostile",
        &[
            "--seconds",
            "2",
            "--jit-name",
            names[0],
            "--jit-name",
            names[1],
        ],
    );
    let tgid = workload.pid();
    let (report, results) = profile_workload(workload, tgid);
    let jit = results
        .iter()
        .find(|thread| thread["kind"] == "jit")
        .expect("the thread with made code");
    for (nth, wanted) in names.iter().enumerate() {
        let found = samples(&report, |frame| {
            name(frame) == *wanted && frame["kind"] == "jit"
        });
        let spent = jit["spent_ns"][nth].as_u64().expect("ns");
        assert_samples(found, spent, &report);
    }
}

#[test]
fn a_stripped_program_has_offsets_that_nm_knew() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let whole = compile(dir.path(), "whole", BURN, &[]);
    let stripped = dir.path().join("stripped");
    fs::copy(&whole, &stripped).expect("a copy");
    run(Command::new("strip").arg(&stripped));
    let symbols = run(Command::new("nm").arg("-S").arg(&whole));
    let hot = symbols
        .lines()
        .find(|line| line.ends_with(" T hot"))
        .expect("hot in nm");
    let mut hot = hot
        .split(' ')
        .map_while(|word| u64::from_str_radix(word, 16).ok());
    let (start_of_hot, size) = (hot.next().expect("address"), hot.next().expect("size"));

    let (workload, tgid) = start(&stripped, &["300"]);
    let (report, results) = profile_workload(workload, tgid);
    let found = samples(&report, |frame| {
        name(frame)
            .strip_prefix("stripped+0x")
            .and_then(|offset| u64::from_str_radix(offset, 16).ok())
            .is_some_and(|offset| (start_of_hot..start_of_hot + size).contains(&offset))
    });
    assert_samples(found, number(&results[0], "burn_ns"), &report);
    assert_eq!(samples(&report, |frame| name(frame) == "hot"), 0);
}

#[test]
fn inlined_functions_are_frames_with_file_and_line() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "inlined", BURN, &["-O2", "-g"]);
    let (workload, tgid) = start(&program, &["300"]);
    let (report, results) = profile_workload(workload, tgid);
    let inner = |frame: &Value| {
        name(frame) == "inner"
            && frame["inlined"] == true
            && frame["file"]
                .as_str()
                .is_some_and(|file| file.ends_with("inlined.c"))
            && frame["line"].as_u64().is_some_and(|line| line > 50)
    };
    assert_samples(
        samples(&report, inner),
        number(&results[0], "burn_ns"),
        &report,
    );
    for stack in stacks(&report) {
        let names: Vec<&str> = frames(stack, "user").iter().map(name).collect();
        if let Some(at) = names.iter().position(|name| *name == "inner") {
            assert_eq!(names[at - 2..=at], ["main", "hot", "inner"]);
        }
    }

    let program = program.to_str().expect("plain");
    let report = profile(&["--no-inline", "--", program, "300", "now"]);
    assert_eq!(samples(&report, |frame| name(frame) == "inner"), 0);
    assert!(samples(&report, |frame| name(frame) == "hot") > 200);
}

#[test]
fn a_debug_link_leads_to_names_and_inlined_functions() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(
        dir.path(),
        "linked",
        BURN,
        &["-O2", "-g", "-Wl,--build-id=none"],
    );
    let step = |tool: &str, args: &[&str]| {
        run(Command::new(tool).args(args).current_dir(dir.path()));
    };
    step("objcopy", &["--only-keep-debug", "linked", "linked.debug"]);
    step("strip", &["linked"]);
    step("objcopy", &["--add-gnu-debuglink=linked.debug", "linked"]);
    let (workload, tgid) = start(&program, &["300"]);
    let (report, results) = profile_workload(workload, tgid);
    let found = samples(&report, |frame| name(frame) == "inner");
    assert_samples(found, number(&results[0], "burn_ns"), &report);
}

#[test]
fn the_vdso_and_the_kernel_have_names() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "asks", ASKS, &[]);
    let (workload, tgid) = start(&program, &[]);
    let (report, results) = profile_workload(workload, tgid);
    let vdso = samples(&report, |frame| {
        name(frame).contains("clock_gettime") && frame["module"] == "[vdso]"
    });
    assert!(vdso > 250, "{vdso} samples in the vDSO: {report:#}");

    let symbols = fs::read_to_string("/proc/kallsyms").expect("kallsyms");
    let known: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let (mut reads, mut zeros) = (0, 0);
    for stack in stacks(&report) {
        let names: Vec<&str> = frames(stack, "kernel").iter().map(name).collect();
        for name in &names {
            assert!(known.contains(name), "{name} in {names:?}");
        }
        if names.contains(&"vfs_read") {
            reads += number(stack, "count");
            if names.iter().any(|name| name.contains("zero")) {
                zeros += number(stack, "count");
            }
        }
    }
    assert_samples(reads, number(&results[0], "read_ns"), &report);
    assert_samples(zeros, number(&results[0], "read_ns"), &report);
}

#[test]
fn the_user_part_of_a_wait_is_named_too() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "waits", WAITS, &[]);
    let output = Command::new(crate::built("offcputime"))
        .args(["-q", "-j", "--"])
        .arg(program)
        .output()
        .expect("offcputime runs");
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sleeps = stacks(&report)
        .iter()
        .filter(|stack| stack["reason"] == "sleep");
    let mut count = 0;
    for stack in sleeps {
        let names: Vec<&str> = frames(stack, "user").iter().map(name).collect();
        assert!(names.ends_with(&["main", "wait_here"]), "{names:?}");
        count += number(stack, "count");
    }
    assert_eq!(count, 23);
}
