//! Hardware counters where it is known what they count: in an emulated arm64 machine whose time is its instructions.
//!
//! QEMU's `-icount shift=N` lets each instruction take 2^N ns, and counts a cycle each ns: instructions of a known loop are
//! known, and so is how many of them a cycle has. Nothing of a real pipeline is in that, nor caches or branches, which this
//! machine does not count at all.

use crate::prelude::*;
use crate::profile_tool::samples;

/// The loop's turns have two instructions each. With an argument the machine's counter is read before and after all of it, without
/// the kernel's part: not while it is traced, for where a counter is switched with tasks QEMU loses interrupts of another one.
const LOOPS: &str = r#"
#include <linux/perf_event.h>

#define PART(name)                                                                          \
	__attribute__((noinline)) void name(unsigned long laps)                             \
	{                                                                                   \
		register long number __asm__("x8") = SYS_getppid;                           \
		register long result __asm__("x0");                                         \
                                                                                            \
		WITH_FRAME;                                                                 \
		while (laps--) {                                                            \
			unsigned long turns = LAP / 2;                                      \
                                                                                            \
			__asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b"                    \
					 : "+r"(turns) : : "cc");                           \
			__asm__ volatile("svc #0" : "=r"(result) : "r"(number) : "memory"); \
		}                                                                           \
	}
PART(large_part)
PART(small_part)

static void work(void)
{
	large_part(LARGE);
	small_part(SMALL);
}

static void count_work(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_kernel = 1,
	};
	int counter = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	long long before, after;

	if (read(counter, &before, sizeof(before)) != sizeof(before))
		_exit(7);
	work();
	if (read(counter, &after, sizeof(after)) != sizeof(after))
		_exit(7);
	say("{\"instructions\": %lld}\n", after - before);
}

int main(int argc, char **argv)
{
	ready();
	if (argc > 1)
		count_work();
	else
		work();
	return finished();
}
"#;

/// Instructions between two system calls, and how many such laps each function has. QEMU interrupts for a counter of instructions
/// one too early, finds that it is not full, and looks again when the CPU next enters the kernel: without calls of its own at a
/// tick, behind which another task may run.
const LAP: u64 = 100_000;
const LARGE: u64 = 3_750;
const SMALL: u64 = 1_250;
/// Events of a sample.
const PERIOD: u64 = 1_000_000;
/// Samples that a function may have too many or too few: one for where its first period began, one that was taken late.
const EDGES: u64 = 2;
/// One in so many of its samples may be of the kernel's instructions: for calls, ticks, and samples themselves.
const KERNEL: u64 = 50;
/// A lap's instructions outside its loop.
const AROUND: u64 = 20;

/// The machine's own account of the program, without any tool.
fn assert_counted(program: &Program) {
    let mut workload = program.start("counted");
    let results = workload.work();
    workload.finish();
    let instructions = number(&results[0], "instructions");
    let laps = LARGE + SMALL;
    let known = laps * LAP..laps * (LAP + AROUND);
    assert_within("instructions", instructions, known, &results[0]);
}

/// Samples of the program by a counter that counts `each` events an instruction: of each function as many as its loop makes.
fn samples_by(program: &Program, event: &str, each: u64) -> u64 {
    let mut workload = program.start("");
    let args = format!("-j -e {event} -c {PERIOD} -p {}", workload.pid());
    let tool = Tool::attached("profile", args);
    workload.work();
    let report = tool.report();
    workload.finish();
    assert_eq!(number(&report, "period"), PERIOD, "{report}");
    let of = |(function, laps): (&str, u64)| {
        let known = laps * LAP * each / PERIOD;
        let bounds = known - EDGES..=known + known / KERNEL + EDGES;
        let samples = samples(&report, function);
        assert_within(format!("{event} in {function}"), samples, bounds, &report);
        samples
    };
    [("large_part", LARGE), ("small_part", SMALL)]
        .map(of)
        .iter()
        .sum()
}

/// Both counters, of functions whose instructions are known, and so what a cycle had of them.
#[test]
fn instructions_and_cycles_of_functions_are_those_of_their_loops() {
    let _machine = Machine::alone();
    let Ok(ns) = std::env::var("INSTRUCTION_NS") else {
        return eprintln!("SKIPPED: no machine whose instructions take a known time: make smoke");
    };
    // At a cycle each ns.
    let cycles_each: u64 = ns.parse().expect("ns");
    let flags = format!("-DLAP={LAP}ul -DLARGE={LARGE} -DSMALL={SMALL}");
    let program = Program::c("loops", LOOPS, &flags);
    assert_counted(&program);
    let instructions = samples_by(&program, "instructions", 1);
    let cycles = samples_by(&program, "cycles", cycles_each);
    let per_cycle = (instructions * cycles_each) as f64 / cycles as f64;
    // Edges of two functions, of 500 samples and of no fewer; the kernel's part is in both.
    assert_within(
        "instructions a cycle, of what is known",
        per_cycle,
        0.98..=1.02,
        &flags,
    );
}

/// The machine has counters, but not this one.
#[test]
fn a_counter_that_the_machine_lacks_is_named() {
    let _machine = Machine::beside();
    for event in ["branches", "cache-misses", "L1-dcache-loads"] {
        let output = Tool::run("profile", format!("-e {event} 100ms")).status(1);
        let expected = format!(
            "profile: event {event}: this machine has no such hardware counter \
             (virtual machines often have none); use -e cpu-clock\n"
        );
        assert_eq!(output.stderr, expected);
    }
}
