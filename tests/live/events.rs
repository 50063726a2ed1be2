//! profile's other events against programs that cause a known number of them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::beside;
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

const CALLS: u64 = 1009;

/// Allocates 1, 2, … bytes; asks for its parent; reads 1, 2, … bytes; touches fresh pages.
const BUSY: &str = r#"
__attribute__((noinline)) static void *volatile_malloc(size_t size)
{
	void *volatile memory = malloc(size);
	return memory;
}
__attribute__((noinline)) void touch(char *memory, long pages)
{
	for (long i = 0; i < pages; i++)
		((volatile char *)memory)[i * 4096] = 1;
}
__attribute__((noinline)) int recurse(int depth)
{
	volatile int rest = depth;

	if (depth == 0)
		return (int)syscall(SYS_getppid);
	return recurse(rest - 1) + rest;
}
int main(void)
{
	static char buffer[4096];
	int zero = open("/dev/zero", O_RDONLY);
	char *pages = mmap(NULL, 1009 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(pages, 1009 * 4096, MADV_NOHUGEPAGE);
	ready();
	for (int i = 1; i <= 1009; i++) {
		volatile_malloc(i);
		syscall(SYS_getppid);
		if (syscall(SYS_readahead, zero, 0L, (long)i) == 0)
			return 1;
		if (read(zero, buffer, i) != i)
			return 1;
	}
	touch(pages, 1009);
	for (int i = 0; i < 7; i++) {
		recurse(200);
		volatile_malloc(0);
	}
	say("done\n");
	await_go();
}
"#;

fn trace(dir: &Path, options: &[&str]) -> Output {
    trace_of(Command::new(compile(dir, "busy", BUSY, &[])), options)
}

fn trace_of(command: Command, options: &[&str]) -> Output {
    let (mut workload, tgid) = Workload::spawn("busy", command);
    let pid = tgid.to_string();
    let tool = Tool::start("profile", &[&["-j", "-p", &pid], options].concat());
    tool.wait_attached();
    workload.go();
    workload.results();
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    output
}

fn report(options: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let output = trace(dir.path(), options);
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("JSON")
}

/// Sum of the values, and of the samples, of stacks through `function`; of all with "".
fn sums(report: &Value, function: &str) -> (u64, u64) {
    let stacks = report["stacks"].as_array().expect("stacks").iter();
    let through = stacks.filter(|stack| {
        let frames = stack["user"].as_array().expect("frames");
        function.is_empty() || frames.iter().any(|frame| frame["name"] == function)
    });
    through.fold((0, 0), |(values, count), stack| {
        let value = stack["values"][0].as_u64().expect("a value");
        (values + value, count + number(stack, "count"))
    })
}

#[test]
fn calls_of_a_function_are_counted_exactly_and_weighed_by_an_argument() {
    let Some(_machine) = beside() else {
        return;
    };
    let malloc = ["-e", "uprobe:libc:malloc"];
    assert_eq!(sums(&report(&malloc), ""), (CALLS + 7, CALLS + 7));

    let weighed = report(&[&malloc[..], &["--weight", "arg1"]].concat());
    assert_eq!(sums(&weighed, ""), (CALLS * (CALLS + 1) / 2, CALLS + 7));
    // malloc(0) weighs nothing, which is said.
    assert_eq!(number(&weighed["losses"], "bad_weight"), 7);
    assert_eq!(weighed["values"][0]["unit"], "arg1 of malloc");
}

/// A program on a tracepoint can keep its events from everybody else.
#[test]
fn perf_counts_what_is_profiled_as_if_nobody_else_looked() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "busy", BUSY, &[]);
    let event = "syscalls:sys_enter_getppid";
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", event, "-o"])
        .arg(dir.path().join("counts"))
        .arg("--")
        .arg(program);
    let options = ["-e", &format!("tracepoint:{event}")];
    let output = trace_of(perf, &options);
    assert_eq!(sums(&output.report(), ""), (CALLS + 7, CALLS + 7));
    let counts = std::fs::read_to_string(dir.path().join("counts")).expect("perf's counts");
    let line = counts.lines().find(|line| line.contains(event));
    let count = line.and_then(|line| line.split(',').next());
    assert_eq!(count, Some((CALLS + 7).to_string().as_str()), "{counts}");
}

#[test]
fn a_tracepoint_is_counted_exactly_and_weighed_by_a_field() {
    let Some(_machine) = beside() else {
        return;
    };
    let counted = report(&["-e", "tracepoint:syscalls:sys_enter_getppid"]);
    assert_eq!(sums(&counted, ""), (CALLS + 7, CALLS + 7));
    assert_eq!(sums(&counted, "recurse"), (7, 7));

    let weighed = report(&[
        "-e",
        "tracepoint:syscalls:sys_enter_readahead",
        "--weight",
        "count",
    ]);
    assert_eq!(sums(&weighed, ""), (CALLS * (CALLS + 1) / 2, CALLS));
    assert_eq!(weighed["values"][0]["name"], "weight");
    let unit = "count of syscalls:sys_enter_readahead";
    assert_eq!(weighed["values"][0]["unit"], unit);

    // Each sample stands for the events since the last one of its CPU: at most one period a CPU is left over.
    let every = report(&["-e", "tracepoint:syscalls:sys_enter_readahead", "-c", "10"]);
    let (events, samples) = sums(&every, "");
    assert_eq!(events, samples * 10);
    assert!(
        (CALLS - 10 * budget::meter::cpus_online()..=CALLS).contains(&events),
        "{events}"
    );
}

#[test]
fn page_faults_are_the_pages_touched() {
    let Some(_machine) = beside() else {
        return;
    };
    let faults = report(&["-e", "page-faults"]);
    assert_eq!(sums(&faults, "touch"), (CALLS, CALLS));
    // Each is taken: no frequency has any part in it.
    assert_eq!(faults["frequency_hz"], Value::Null);
    assert_eq!(faults["period"], 1);
    // The heap's pages come on top.
    let (all, _) = sums(&faults, "");
    assert!((CALLS..CALLS + 200).contains(&all), "{all} faults");
}

#[test]
fn losses_are_counted_and_strict_says_so() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let deep = ["-e", "tracepoint:syscalls:sys_enter_getppid", "--strict"];
    let output = trace(dir.path(), &deep);
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("; LOST 7 stacks cut at 127 frames\n"),
        "{}",
        output.stderr
    );
    let lossy: Value = serde_json::from_str(&output.stdout).expect("JSON, all the same");
    assert_eq!(sums(&lossy, ""), (CALLS + 7, CALLS + 7));

    let flat = ["-e", "tracepoint:syscalls:sys_enter_readahead", "--strict"];
    let output = trace(dir.path(), &flat);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output.stderr.contains("; lost nothing\n"),
        "{}",
        output.stderr
    );
}

#[test]
fn what_an_event_does_not_have_is_said() {
    let Some(_machine) = beside() else {
        return;
    };
    let complaint = |options: &[&str]| {
        let output = Tool::start("profile", &[options, &["100ms"]].concat()).finish();
        assert_eq!(output.code, 1, "{options:?}: {}", output.stderr);
        assert_eq!(output.stdout, "");
        output.stderr
    };
    assert_eq!(
        complaint(&["-e", "tracepoint:syscals:sys_enter_read"]),
        "profile: no tracepoint syscals:sys_enter_read; did you mean syscalls?\n"
    );
    assert_eq!(
        complaint(&[
            "-e",
            "tracepoint:syscalls:sys_enter_readahead",
            "--weight",
            "bytes"
        ]),
        "profile: --weight bytes: syscalls:sys_enter_readahead has __syscall_nr, fd, offset, count\n"
    );
    assert_eq!(
        complaint(&["-e", "uprobe:libc:malloc", "--weight", "arg7"]),
        "profile: --weight arg7: a uprobe has arg1 to arg6\n"
    );
    assert_eq!(
        complaint(&["--weight", "arg1"]),
        "profile: --weight: event cpu-clock has no arguments; tracepoints and uprobes have\n"
    );
    let missing = complaint(&["-e", "uprobe:/bin/sh:no_such_function"]);
    assert!(
        missing.starts_with("profile: uprobe: no function no_such_function in /bin/sh"),
        "{missing}"
    );
    assert_eq!(
        complaint(&["-e", "uprobe:/no/such/file:main"]),
        "profile: uprobe: no file /no/such/file\n"
    );
    if Path::new("/sys/bus/event_source/devices/cpu").exists() {
        return eprintln!("SKIPPED: cycles without counters: this machine has them");
    }
    assert_eq!(
        complaint(&["-e", "cycles"]),
        "profile: event cycles: this machine has no such hardware counter \
         (virtual machines often have none); use -e cpu-clock\n"
    );
}
