//! `--max-overhead` of `profile`: calls, ticks of a clock.

use crate::budget::{PERCENT, assert_inside, held};
use crate::prelude::*;

/// 200 calls every millisecond, whatever they take.
const PACED: &str = r#"
int main(void)
{
	struct timespec at;
	long calls = 0;

	ready();
	clock_gettime(CLOCK_MONOTONIC, &at);
	for (int ms = 0; ms < 6000; ms++) {
		for (int i = 0; i < 200; i++, calls++)
			syscall(SYS_getppid);
		at.tv_nsec += 1000000;
		at.tv_sec += at.tv_nsec / 1000000000;
		at.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	}
	say("{\"calls\": %ld}\n", calls);
	return finished();
}
"#;

/// Programs are detached between windows.
#[test]
#[ignore = "statistical: make truth"]
fn profile_under_a_storm_of_calls_keeps_its_budget_and_tells_the_truth() {
    let _machine = Machine::alone();
    let mut workload = Program::c("paced", PACED, "").started("");
    let options = format!(
        "-p {} -e tracepoint:syscalls:sys_enter_getppid",
        workload.pid()
    );
    let (output, results) = held("profile", &options, PERCENT, || workload.work());
    workload.finish();
    let report = output.report();
    let samples = &report["estimates"]["samples"];
    assert_inside(samples, sum(&results, "calls"), "calls");
    let stacks = list(&report, "stacks");
    let found = sum(stacks, "count") as f64;
    let total = samples["total"].as_f64().expect("a total");
    assert!((found / total - 1.0).abs() < 0.01, "{found} of {total}");
    let in_main = |stack: &&Value| {
        list(stack, "user")
            .iter()
            .any(|frame| frame["name"] == "main")
    };
    let whole = sum(stacks.iter().filter(in_main), "count");
    assert!(whole as f64 > 0.99 * found, "{whole} of {found}");
}

/// As many calls as go into six seconds of wall time. A thousand take less than a microsecond or, where each traps, more than a
/// millisecond: what the latter had of the CPU is said, and what of that was beyond 10 ms, as when the CPU was halted.
const CALLING: &str = r#"
__attribute__((noinline)) long hit(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}
static long now(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000 + at.tv_nsec;
}
int main(void)
{
	long began, trapped = 0, halted = 0;

	ready();
	began = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) - began < 6000000000) {
		long from = now(CLOCK_THREAD_CPUTIME_ID), took;

		for (int i = 0; i < 1000; i++)
			hit(i);
		took = now(CLOCK_THREAD_CPUTIME_ID) - from;
		if (took > 200000)
			trapped += took;
		if (took > 10000000)
			halted += took - 10000000;
	}
	say("{\"trapped_ns\": %ld, \"halted_ns\": %ld, \"wall_ns\": %ld}\n", trapped, halted,
	    now(CLOCK_MONOTONIC) - began);
	return finished();
}
"#;

/// What the kernel does around a program on a function takes longer than the program: one trap, microseconds.
#[test]
#[ignore = "statistical: make truth"]
fn profile_of_a_function_pays_for_its_traps() {
    let _machine = Machine::alone();
    let program = Program::c("calling", CALLING, "");
    let mut workload = program.start("");
    let options = format!("-p {} -e uprobe:{}:hit", workload.pid(), program.text());
    let (output, results) = held("profile", &options, PERCENT, || workload.work());
    workload.finish();
    let budget = &output.report()["cost"]["budget"];
    let trapped_ns = sum(&results, "trapped_ns") as f64;
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as f64;
    // A hypervisor may halt a CPU for some 50 ms and not call it stolen.
    let halted_ns = sum(&results, "halted_ns").min(100_000_000) as f64;
    let wall_ns = sum(&results, "wall_ns") as f64;
    let percent = 100.0 * (trapped_ns - halted_ns) / (wall_ns * cpus);
    assert_within("% in traps", percent, ..=PERCENT, budget);
    // Both are in the budget.
    let own_ns = number(&output.report(), "cost.own_cpu_ns") as f64;
    let bounds = 0.8 * (trapped_ns - halted_ns)..1.25 * (trapped_ns + own_ns);
    assert_within(
        "ns spent",
        number(budget, "spent_ns") as f64,
        bounds,
        budget,
    );
}

/// A clock goes on from window to window where it was in its period.
#[test]
#[ignore = "statistical: make truth"]
fn profile_by_a_fast_clock_keeps_its_budget_and_tells_the_truth() {
    let _machine = Machine::alone();
    let mut workload = Workload::start("spinner", "--threads 2 --seconds 10");
    let options = format!("-p {} -F 9997", workload.pid());
    // Everything would be 1.4 %.
    let (output, results) = held("profile", &options, 0.6, || workload.work());
    workload.finish();
    let samples = &output.report()["estimates"]["samples"];
    let truth = sum(&results, "total.oncpu_ns") * 9997 / 1_000_000_000;
    assert_inside(samples, truth, "samples");
}

/// A write in every millisecond.
const WRITES: &str = r#"
int main(void)
{
	int null = open("/dev/null", O_WRONLY);

	ready();
	for (int i = 0; i < 3000; i++) {
		put_byte(null, 0);
		usleep(1000);
	}
	say("{}\n");
	return finished();
}
"#;

/// Debian's C library has no table of symbols but the dynamic one.
#[test]
fn a_stripped_librarys_function_is_found_within_a_budget() {
    let _machine = Machine::beside();
    // It writes for as long as a program may be traced and not be.
    let mut workload = Program::c("writes", WRITES, "").started("");
    let options = "-e uprobe:libc.so.6:write --max-overhead 5 -j";
    let (output, _) = during("profile", options, || workload.work());
    workload.finish();
    let report = output.report();
    assert!(sum(list(&report, "stacks"), "values.0") > 0, "{report}");
}
