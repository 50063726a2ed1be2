//! profile's other events against programs that cause a known number of them.

use std::path::Path;
use std::process::Command;

use crate::prelude::*;

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
	return finished();
}
"#;

fn busy() -> Program {
    Program::c("busy", BUSY, "")
}

/// Words of profile on the program's work.
fn trace(mut workload: Workload, options: &str) -> Output {
    let args = format!("-j -p {} {options}", workload.pid());
    let tool = Tool::attached("profile", args);
    workload.work();
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    output
}

fn report(options: &str) -> Value {
    trace(busy().start(""), options).ok().report()
}

/// Sum of the values, and of the samples, of stacks through `function`; of all with "".
fn sums(report: &Value, function: &str) -> (u64, u64) {
    let through = |stack: &&Value| {
        let mut frames = list(stack, "user").iter();
        function.is_empty() || frames.any(|frame| frame["name"] == function)
    };
    let through = list(report, "stacks").iter().filter(through);
    (sum(through.clone(), "values.0"), sum(through, "count"))
}

#[test]
fn calls_of_a_function_are_counted_exactly_and_weighed_by_an_argument() {
    let _machine = Machine::beside();
    let malloc = "-e uprobe:libc:malloc";
    assert_eq!(sums(&report(malloc), ""), (CALLS + 7, CALLS + 7));

    let weighed = report(&format!("{malloc} --weight arg1"));
    assert_eq!(sums(&weighed, ""), (CALLS * (CALLS + 1) / 2, CALLS + 7));
    // malloc(0) weighs nothing, which is said.
    assert_eq!(number(&weighed["losses"], "bad_weight"), 7);
    assert_eq!(weighed["values"][0]["unit"], "arg1 of malloc");
}

/// A program with symbols as C++ has them.
const SHOP: &str = r#"
void handle(int order) __asm__("_ZN4shop6Server6handleERKNS_5OrderEi");
__attribute__((noinline)) void handle(int order)
{
	__asm__ volatile("" : : "r"(order));
}
void overload(void) __asm__("_ZN4shop4sellEi"), other(void) __asm__("_ZN4shop4sellEl");
void overload(void) {}
void other(void) {}
int main(void)
{
	ready();
	for (int i = 0; i < 1009; i++)
		handle(i);
	return finished();
}
"#;

#[test]
fn a_function_of_cpp_is_asked_for_by_the_name_that_reports_have() {
    let _machine = Machine::beside();
    let program = Program::c("shop", SHOP, "");
    let event = format!("-e uprobe:{}:shop::Server::handle", program.text());
    let output = trace(program.start(""), &event);
    let report = output.ok().report();
    assert_eq!(sums(&report, ""), (CALLS, CALLS));
    let event = format!("-e uprobe:{}:shop::sell 1", program.text());
    let which = "has several functions shop::sell; take shop::sell(int) or shop::sell(long)";
    Tool::run("profile", event).status(1).assert_says(which);
}

/// A program on a tracepoint can keep its events from everybody else.
#[test]
fn perf_counts_what_is_profiled_as_if_nobody_else_looked() {
    let _machine = Machine::beside();
    let program = busy();
    let counts = program.dir().join("counts");
    let event = "syscalls:sys_enter_getppid";
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", event, "-o"])
        .arg(&counts);
    perf.arg("--").arg(program.path());
    let output = trace(
        Workload::spawn("busy", perf),
        &format!("-e tracepoint:{event}"),
    );
    assert_eq!(sums(&output.report(), ""), (CALLS + 7, CALLS + 7));
    let counts = std::fs::read_to_string(counts).expect("perf's counts");
    let line = counts.lines().find(|line| line.contains(event));
    let count = line.and_then(|line| line.split(',').next());
    assert_eq!(count, Some((CALLS + 7).to_string().as_str()), "{counts}");
}

#[test]
fn a_tracepoint_is_counted_exactly_and_weighed_by_a_field() {
    let _machine = Machine::beside();
    let counted = report("-e tracepoint:syscalls:sys_enter_getppid");
    assert_eq!(sums(&counted, ""), (CALLS + 7, CALLS + 7));
    assert_eq!(sums(&counted, "recurse"), (7, 7));

    let weighed = report("-e tracepoint:syscalls:sys_enter_readahead --weight count");
    assert_eq!(sums(&weighed, ""), (CALLS * (CALLS + 1) / 2, CALLS));
    assert_eq!(weighed["values"][0]["name"], "weight");
    let unit = "count of syscalls:sys_enter_readahead";
    assert_eq!(weighed["values"][0]["unit"], unit);

    // Each sample stands for the events since the last one of its CPU: at most one period a CPU is left over.
    let every = report("-e tracepoint:syscalls:sys_enter_readahead -c 10");
    let (events, samples) = sums(&every, "");
    assert_eq!(events, samples * 10);
    let least = CALLS - 10 * budget::meter::cpus_online();
    assert_within("events", events, least..=CALLS, &every);
}

#[test]
fn page_faults_are_the_pages_touched() {
    let _machine = Machine::beside();
    let faults = report("-e page-faults");
    assert_eq!(sums(&faults, "touch"), (CALLS, CALLS));
    // Each is taken: no frequency has any part in it.
    assert_eq!(faults["frequency_hz"], Value::Null);
    assert_eq!(faults["period"], 1);
    // The heap's pages come on top.
    let (all, _) = sums(&faults, "");
    assert_within("faults", all, CALLS..CALLS + 200, &faults);
}

#[test]
fn losses_are_counted_and_strict_says_so() {
    let _machine = Machine::beside();
    let deep = "-e tracepoint:syscalls:sys_enter_getppid --strict";
    let output = trace(busy().start(""), deep).status(3);
    output.assert_says("; LOST 7 stacks cut at 127 frames; ");
    assert_eq!(sums(&output.report(), ""), (CALLS + 7, CALLS + 7));

    let flat = "-e tracepoint:syscalls:sys_enter_readahead --strict";
    let output = trace(busy().start(""), flat).ok();
    output.assert_says("; lost nothing; cost ");
}

#[test]
fn what_an_event_does_not_have_is_said() {
    let _machine = Machine::beside();
    let complaint = |options: &str| {
        let output = Tool::run("profile", format!("{options} 100ms")).status(1);
        assert_eq!(output.stdout, "");
        output.stderr
    };
    for (options, expected) in [
        (
            "-e tracepoint:syscals:sys_enter_read",
            "no tracepoint syscals:sys_enter_read; did you mean syscalls?",
        ),
        (
            "-e tracepoint:syscalls:sys_enter_readahead --weight bytes",
            "--weight bytes: syscalls:sys_enter_readahead has __syscall_nr, fd, offset, count",
        ),
        (
            "-e uprobe:libc:malloc --weight arg7",
            "--weight arg7: a uprobe has arg1 to arg6",
        ),
        (
            "--weight arg1",
            "--weight: event cpu-clock has no arguments; tracepoints and uprobes have",
        ),
        (
            "-e uprobe:/no/such/file:main",
            "uprobe: no file /no/such/file",
        ),
        (
            "-e uprobe:/etc/passwd:main",
            "uprobe: /etc/passwd: no program or library; see file(1)",
        ),
    ] {
        assert_eq!(complaint(options), format!("profile: {expected}\n"));
    }
    let missing = complaint("-e uprobe:/bin/sh:no_such_function");
    let expected = "profile: uprobe: no function no_such_function in /bin/sh";
    assert!(missing.starts_with(expected), "{missing}");
    if Path::new("/sys/bus/event_source/devices/cpu").exists() {
        return eprintln!("SKIPPED: cycles without counters: this machine has them");
    }
    assert_eq!(
        complaint("-e cycles"),
        "profile: event cycles: this machine has no such hardware counter \
         (virtual machines often have none); use -e cpu-clock\n"
    );
}
