//! `--max-overhead` of tools that count events: requests, calls, ticks of a clock.

use std::process::Command;

use crate::biolatency::{self, groups};
use crate::budget::{PERCENT, assert_inside, held, sum};
use crate::c_program::compile;
use crate::cpu_times::stolen_samples;
use crate::disk::{LoopDisk, fio};
use crate::kernel::alone;
use crate::tool::Tool;
use crate::workload::{Workload, number};

/// Requests that the kernel stamps count where they end, others, with their submitters, where they begin. They come at a rate of
/// their own: where the CPUs are all busy a load is slower while it is looked at.
#[test]
#[ignore = "statistical: make truth"]
fn biolatency_under_a_storm_of_requests_keeps_its_budget_and_tells_the_truth() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(128);
    let load = [
        "--rw=randread",
        "--bs=4k",
        "--rate_iops=40000",
        "--iodepth=4",
        "--ioengine=libaio",
        "--time_based",
        // What the first looks cost, when nothing is known, is made up for in some seconds.
        "--runtime=10",
    ];
    for kind in ["-Q", "-P"] {
        let before = disk.stat();
        let options = ["-d", &disk.name, kind];
        let (output, ()) = held("biolatency", &options, 0.7, || {
            fio(&disk.path, &load);
        });
        let report = output.report();
        let estimates = &report["estimates"];
        let truth = disk.stat().since(&before);
        let (_, reads) = truth
            .iter()
            .find(|(class, _)| *class == "read")
            .expect("reads");
        assert_inside(&estimates["count"], reads.requests, "requests");
        if kind == "-Q" {
            // Looking at a request takes up to 1 us of its time.
            let estimate = estimates["sum_ns"]["total"].as_f64().expect("a total") as u64;
            let truth = reads.ms * 1_000_000;
            let truth = estimate.clamp(truth, truth + 1000 * reads.requests);
            assert_inside(&estimates["sum_ns"], truth, "their time");
        }
        let of_disk = &biolatency::disk(&report, &disk.name)["ops"]["read"];
        let bytes = number(of_disk, "bytes") as f64 / number(of_disk, "requests") as f64;
        assert!((bytes / 4096.0 - 1.0).abs() < 0.01, "{of_disk}");
        let by_fio = groups(&report)
            .iter()
            .filter(|group| kind == "-Q" || group["comm"] == "fio");
        let found: u64 = by_fio.map(|group| number(group, "count")).sum();
        let total = estimates["count"]["total"].as_f64().expect("a total");
        assert!(
            (found as f64 / total - 1.0).abs() < 0.01,
            "{found} of {total}"
        );
    }
}

/// Between two intervals nobody looks. With 64 requests under way at any time some 15 complete in each of those gaps.
#[test]
fn requests_that_complete_between_intervals_are_no_loss() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(64);
    let load = [
        "--rw=randread",
        "--bs=4k",
        "--rate_iops=20000",
        "--iodepth=64",
        "--ioengine=libaio",
        "--time_based",
        "--runtime=3",
    ];
    let options = ["-d", &disk.name, "-P", "--max-overhead", "50", "-j", "0.1"];
    let tool = Tool::start("biolatency", &options);
    tool.wait_attached();
    fio(&disk.path, &load);
    tool.interrupt();
    let output = tool.finish();
    let reports = output.reports();
    assert!(reports.len() >= 20, "{}", reports.len());
    let unseen = number(&reports[reports.len() - 1]["losses"], "unseen");
    // A sandbox's kernel does hide some where its own tasks run beside.
    let most = 4 * reports.len() as u64;
    assert!(unseen <= most, "{unseen} in {} intervals", reports.len());
}

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
	say("{\"calls\": %ld}\ndone\n", calls);
	await_go();
}
"#;

/// Programs are detached between windows.
#[test]
#[ignore = "statistical: make truth"]
fn profile_under_a_storm_of_calls_keeps_its_budget_and_tells_the_truth() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = Command::new(compile(dir.path(), "paced", PACED, &[]));
    let (mut workload, pid) = Workload::spawn("paced", program);
    let event = "tracepoint:syscalls:sys_enter_getppid";
    let options = ["-p", &pid.to_string(), "-e", event];
    let (output, results) = held("profile", &options, PERCENT, || {
        workload.go();
        workload.results()
    });
    workload.finish();
    let report = output.report();
    assert_inside(
        &report["estimates"]["samples"],
        sum(&results, "calls"),
        "calls",
    );
    let stacks = report["stacks"].as_array().expect("stacks");
    let found = sum(stacks, "count") as f64;
    let total = report["estimates"]["samples"]["total"]
        .as_f64()
        .expect("a total");
    assert!((found / total - 1.0).abs() < 0.01, "{found} of {total}");
    let whole = stacks.iter().filter(|stack| {
        let frames = stack["user"].as_array().expect("frames");
        frames.iter().any(|frame| frame["name"] == "main")
    });
    let whole: u64 = whole.map(|stack| number(stack, "count")).sum();
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
	say("{\"trapped_ns\": %ld, \"halted_ns\": %ld, \"wall_ns\": %ld}\ndone\n", trapped, halted,
	    now(CLOCK_MONOTONIC) - began);
	await_go();
}
"#;

/// What the kernel does around a program on a function takes longer than the program: one trap, microseconds.
#[test]
#[ignore = "statistical: make truth"]
fn profile_of_a_function_pays_for_its_traps() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = compile(dir.path(), "calling", CALLING, &[]);
    let event = format!("uprobe:{}:hit", path.display());
    let (mut workload, pid) = Workload::spawn("calling", Command::new(path));
    let options = ["-p", &pid.to_string(), "-e", &event];
    let (output, results) = held("profile", &options, PERCENT, || {
        workload.go();
        workload.results()
    });
    workload.finish();
    let budget = &output.report()["cost"]["budget"];
    let trapped_ns = sum(&results, "trapped_ns") as f64;
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as f64;
    // A hypervisor may halt a CPU for some 50 ms and not call it stolen.
    let halted_ns = sum(&results, "halted_ns").min(100_000_000) as f64;
    let wall_ns = sum(&results, "wall_ns") as f64;
    let percent = 100.0 * (trapped_ns - halted_ns) / (wall_ns * cpus);
    eprintln!("{percent:.2}% in traps: {budget}");
    // Both are in the budget.
    let own_ns = number(&output.report()["cost"], "own_cpu_ns") as f64;
    assert!(percent <= PERCENT, "{percent:.2}% in traps: {budget}");
    let spent_ns = number(budget, "spent_ns") as f64;
    assert!(
        (0.8 * (trapped_ns - halted_ns)..1.25 * (trapped_ns + own_ns)).contains(&spent_ns),
        "{trapped_ns} ns in traps: {budget}"
    );
}

/// A clock goes on from window to window where it was in its period.
#[test]
#[ignore = "statistical: make truth"]
fn profile_by_a_fast_clock_keeps_its_budget_and_tells_the_truth() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::start("spinner", &["--threads", "2", "--seconds", "10"]);
    let options = ["-p", &workload.pid().to_string(), "-F", "9997"];
    // Everything would be 1.4 %.
    let (output, results) = held("profile", &options, 0.6, || {
        workload.go();
        workload.results()
    });
    workload.finish();
    let samples = &output.report()["estimates"]["samples"];
    let total = samples["total"].as_f64().expect("a total") as u64;
    let truth = sum(&results, "total.oncpu_ns") * 9997 / 1_000_000_000;
    let stolen = stolen_samples(9997.0) as u64;
    assert_inside(samples, total.clamp(truth, truth + stolen), "samples");
}
