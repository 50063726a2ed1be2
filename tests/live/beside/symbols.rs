//! Names: programs that are gone, stripped, inlined, made at run time or visible only elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::args::Args;
use crate::c_program::{BURN, run};
use crate::prelude::*;

pub(crate) const HERTZ: &str = "997";

/// Asks for the time in the vDSO, then reads zeros from the kernel.
const ASKS: &str = r#"
static char buffer[1 << 20];
int main(void)
{
	int zero = open("/dev/zero", O_RDONLY);
	long long start, now, mid;

	ready();
	/* By its own CPU time, however busy the machine is, and by work: what a hypervisor stole may be of that time. */
	start = now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (int n = 0; now < start + 500000000 || n < 1000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID), n++)
		for (int i = 0; i < 10000; i++)
			clock_ns(CLOCK_MONOTONIC);
	start = mid = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	now = start;
	for (int n = 0; now < start + 300000000 || n < 3000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID), n++)
		if (read(zero, buffer, sizeof(buffer)) < 0)
			return 1;
	say("{\"read_ns\": %lld}\n", now - mid);
	return finished();
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
	for (int i = 0; i < 23; i++) {
		long before = sleeps_so_far();

		/* A thread that is late finds its time over, and has not slept. */
		do
			if (wait_here())
				return 1;
		while (sleeps_so_far() == before);
	}
}
"#;

/// Runs `profile ARGS`, which may be around a command; its report.
pub(crate) fn profile(args: impl Args) -> Value {
    let mut command = Tool::command("profile", format!("-j -F {HERTZ}"));
    command.args(args.words());
    let output = Tool::spawn("profile", command).finish().ok();
    // A command that was traced has written to the same stdout.
    let report = output
        .stdout
        .lines()
        .find(|line| line.contains("\"stacks\":"));
    json(report.unwrap_or_else(|| panic!("no report: {output:?}")))
}

/// Traces a workload's work by process ID.
pub(crate) fn profile_workload(workload: Workload) -> (Value, Vec<Value>) {
    traced("profile", &format!("-F {HERTZ}"), workload)
}

pub(crate) fn stacks(report: &Value) -> &[Value] {
    list(report, "stacks")
}

pub(crate) fn frames<'a>(stack: &'a Value, side: &str) -> &'a [Value] {
    list(stack, side)
}

pub(crate) fn name(frame: &Value) -> &str {
    text(frame, "name")
}

/// Names of its user frames, root first.
pub(crate) fn names(stack: &Value) -> Vec<&str> {
    frames(stack, "user").iter().map(name).collect()
}

/// Samples of stacks with a user frame for which this holds.
pub(crate) fn samples(report: &Value, wanted: impl Fn(&Value) -> bool) -> u64 {
    let with = |stack: &&Value| frames(stack, "user").iter().any(&wanted);
    sum(stacks(report).iter().filter(with), "count")
}

/// Samples of stacks with a user frame of this name.
pub(crate) fn samples_in(report: &Value, function: &str) -> u64 {
    samples(report, |frame| name(frame) == function)
}

/// All samples of threads of this name.
pub(crate) fn all(report: &Value, comm: &str) -> u64 {
    let own = stacks(report).iter().filter(|stack| stack["comm"] == comm);
    sum(own, "count")
}

/// Nearly all of a program's samples are where it computes; one in ten may be of its beginning and its end. Their number is the
/// clock's.
pub(crate) fn assert_most(found: u64, all: u64, report: &Value) {
    assert_within("samples", found, (all * 9 / 10).max(1)..=all, report);
}

/// Runs [`BURN`] for 300 ms, and profiles it.
pub(crate) fn profile_burn(program: &Path) -> Value {
    let mut command = Command::new(program);
    command.arg("300");
    profile_workload(Workload::spawn("program", command)).0
}

/// Beginning of what is there instead of a kernel frame's name.
pub(crate) const UNNAMED: &str = "[kernel]+0x";

/// BPF programs and their callers, by how their names begin.
const BPF: [&str; 8] = [
    "bpf_prog_",
    "bpf_trampoline_",
    "bpf_dispatcher_",
    "bpf_trace_run",
    "bpf_overflow_handler",
    "__bpf_prog_",
    "__perf_event_overflow",
    "trace_call_bpf",
];

/// A kernel frame, by itself or by its name alone, is a BPF program or calls one. A program of another tool that was loaded after
/// the last look at the kernel's symbols, or is gone, has no name: its caller tells what it is.
pub(crate) fn is_of_bpf(frame: &Value, caller_is: bool) -> bool {
    let name = frame.as_str().or_else(|| frame["name"].as_str());
    let name = name.unwrap_or_default();
    let is_unnamed = caller_is && name.starts_with(UNNAMED);
    is_unnamed || frame["module"] == "[bpf]" || BPF.iter().any(|start| name.starts_with(start))
}

/// Profiles short lives. By word each of them ends when the tool has looked at it: nobody finds its file any more.
fn profile_short_lives(args: &[&str]) -> (Value, Vec<Value>) {
    let mut workload = Workload::start("shortlived", args);
    let options = format!("-j -F {HERTZ} --comm shortlived*");
    let tool = Tool::attached("profile", options);
    let mut results = workload.work();
    while args.contains(&"--by-word") {
        tool.await_rest();
        let next = workload.work();
        if next.is_empty() {
            break;
        }
        results.extend(next);
    }
    let report = tool.report();
    workload.finish();
    (report, results)
}

#[test]
fn programs_that_came_and_went_during_the_run_are_named() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("plain");
    for args in [&[][..], &["--deleted-in", dir, "--by-word"]] {
        let (report, results) = profile_short_lives(args);
        assert_eq!(results.len(), 7);
        let found = samples_in(&report, "shortlived_burn");
        let burns = |stack: &&Value| names(stack).contains(&"shortlived_burn");
        let tgids = stacks(&report).iter().filter(burns);
        let tgids: BTreeSet<u64> = tgids.map(|stack| number(stack, "pid")).collect();
        let children: BTreeSet<u64> = results.iter().map(|child| number(child, "pid")).collect();
        assert_eq!(tgids, children, "{args:?}");
        // They begin and end, too, which takes longer where their file is new.
        let of_children = stacks(&report).iter();
        let of_children = of_children.filter(|stack| children.contains(&number(stack, "pid")));
        let all = sum(of_children, "count");
        assert_within("samples", found, all * 3 / 4..=all, &report);
    }
}

#[test]
fn code_made_at_run_time_has_the_names_of_its_perf_map() {
    let _machine = Machine::beside();
    let names = ["LazyCompile:*sort app.js:7", "semi;colon \u{1b}[31m"];
    let args = [
        "--seconds",
        "2",
        "--jit-name",
        names[0],
        "--jit-name",
        names[1],
    ];
    let workload = Workload::start("hostile", args);
    let (report, _) = profile_workload(workload);
    let found = names.map(|wanted| {
        let is_it = |frame: &Value| name(frame) == wanted && frame["kind"] == "jit";
        samples(&report, is_it)
    });
    assert!(found.iter().all(|found| *found > 0), "{found:?}");
    assert_most(found.iter().sum(), all(&report, "jit"), &report);
}

#[test]
fn a_stripped_program_has_offsets_that_nm_knew() {
    let _machine = Machine::beside();
    let whole = Program::c("whole", BURN, "");
    let stripped = whole.dir().join("stripped");
    fs::copy(whole.path(), &stripped).expect("a copy");
    run(Command::new("strip").arg(&stripped));
    let symbols = run(Command::new("nm").arg("-S").arg(whole.path()));
    let hot = symbols.lines().find(|line| line.ends_with(" T hot"));
    let hot = hot.expect("hot in nm").split(' ');
    let mut hot = hot.map_while(|word| u64::from_str_radix(word, 16).ok());
    let (start_of_hot, size) = (hot.next().expect("address"), hot.next().expect("size"));

    let report = profile_burn(&stripped);
    let offset = |frame: &Value| {
        let offset = name(frame).strip_prefix("stripped+0x")?;
        u64::from_str_radix(offset, 16).ok()
    };
    let is_hot = |offset: u64| (start_of_hot..start_of_hot + size).contains(&offset);
    let found = samples(&report, |frame| offset(frame).is_some_and(is_hot));
    assert_most(found, all(&report, "stripped"), &report);
    assert_eq!(samples_in(&report, "hot"), 0);
}

#[test]
fn inlined_functions_are_frames_with_file_and_line() {
    let _machine = Machine::beside();
    let program = Program::c("inlined", BURN, "-O2 -g");
    let report = profile_burn(program.path());
    let inner = |frame: &Value| {
        let has_file = |file: &str| file.ends_with("inlined.c");
        name(frame) == "inner"
            && frame["inlined"] == true
            && frame["file"].as_str().is_some_and(has_file)
            && frame["line"].as_u64().is_some_and(|line| line > 50)
    };
    assert_most(samples(&report, inner), all(&report, "inlined"), &report);
    for stack in stacks(&report) {
        let names = names(stack);
        if let Some(at) = names.iter().position(|name| *name == "inner") {
            assert_eq!(names[at - 2..=at], ["main", "hot", "inner"]);
        }
    }

    let report = profile(["--no-inline", "--", program.text(), "300", "now"]);
    assert_eq!(samples_in(&report, "inner"), 0);
    assert_most(samples_in(&report, "hot"), all(&report, "inlined"), &report);
}

#[test]
fn a_debug_link_leads_to_names_and_inlined_functions() {
    let _machine = Machine::beside();
    let program = Program::c("linked", BURN, "-O2 -g -Wl,--build-id=none");
    for step in [
        "objcopy --only-keep-debug linked linked.debug",
        "strip linked",
        "objcopy --add-gnu-debuglink=linked.debug linked",
    ] {
        run(Command::new("sh")
            .args(["-c", step])
            .current_dir(program.dir()));
    }
    let report = profile_burn(program.path());
    let inner = samples_in(&report, "inner");
    assert_most(inner, all(&report, "linked"), &report);
}

#[test]
fn the_vdso_and_the_kernel_have_names() {
    let _machine = Machine::beside();
    let (report, _) = profile_workload(Program::c("asks", ASKS, "").started(""));
    let vdso = samples(&report, |frame| {
        name(frame).contains("clock_gettime") && frame["module"] == "[vdso]"
    });

    let symbols = fs::read_to_string("/proc/kallsyms").expect("kallsyms");
    let known: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let (mut kernel, mut reads, mut zeros) = (0, 0, 0);
    for stack in stacks(&report) {
        let names: Vec<&str> = frames(stack, "kernel").iter().map(name).collect();
        let mut in_bpf = false;
        for frame in frames(stack, "kernel") {
            let is_unnamed = in_bpf && name(frame).starts_with(UNNAMED);
            let is_others = is_unnamed || frame["module"] == "[bpf]";
            let is_known = is_others || known.contains(name(frame));
            assert!(is_known, "{frame} in {names:?}");
            in_bpf = is_of_bpf(frame, in_bpf);
        }
        kernel += u64::from(!names.is_empty()) * number(stack, "count");
        if names.contains(&"vfs_read") {
            reads += number(stack, "count");
            if names.iter().any(|name| name.contains("zero")) {
                zeros += number(stack, "count");
            }
        }
    }
    // It is in the kernel to read, or interrupted, and else in the vDSO or on its way there and back.
    assert_most(zeros, reads, &report);
    assert_within("in read", reads, kernel / 2..=kernel, &report);
    let others = all(&report, "asks") - reads;
    assert_within("in the vDSO", vdso, others / 2..=others, &report);
}

#[test]
fn the_user_part_of_a_wait_is_named_too() {
    let _machine = Machine::beside();
    let program = Program::c("waits", WAITS, "");
    let report = Tool::run("offcputime", ["-q", "-j", "--", program.text()]);
    let report = report.ok().report();
    let sleeps = stacks(&report)
        .iter()
        .filter(|stack| stack["reason"] == "sleep");
    for stack in sleeps.clone() {
        let names = names(stack);
        assert!(names.ends_with(&["main", "wait_here"]), "{names:?}");
    }
    assert_eq!(sum(sleeps, "count"), 23);
}
