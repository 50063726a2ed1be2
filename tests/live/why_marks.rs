//! `why --from --to`: pieces of work that functions tell, of a program that logs each of its calls.

use serde_json::json;

use crate::prelude::*;
use crate::why::ALL;
use crate::why_cycles::{logged, percentile};

/// Calls of `handle`, of which every seventh calls itself, every fiftieth sleeps, and every hundredth is left by longjmp(). `begin`
/// and `finish` are called before and after each.
const CALLS: &str = r#"
#include <setjmp.h>

#define NUMBER 1003

static struct call {
	long long begin, served, serves, end, nap;
} calls[NUMBER];
static jmp_buf out;
static long turns;

__attribute__((noinline)) void begin(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void finish(void) { __asm__ volatile("" ::: "memory"); }

__attribute__((noinline)) long handle(struct call *call, int number, int depth)
{
	if (!depth)
		call->served = clock_ns(CLOCK_MONOTONIC);
	if (number % 7 == 0 && depth < 3)
		turns += handle(call, number, depth + 1);
	for (long i = 0; i < 20000 + 50 * number; i++)
		__asm__ volatile("" : "+r"(i));
	if (!depth && number % 50 == 0) {
		call->nap = -clock_ns(CLOCK_MONOTONIC);
		pause_ns(3500000 + 10000 * number);
		call->nap += clock_ns(CLOCK_MONOTONIC);
	}
	if (!depth && number % 100 == 99)
		longjmp(out, 1);
	if (!depth)
		call->serves = clock_ns(CLOCK_MONOTONIC);
	return turns;
}

int main(int argc, char **argv)
{
	/* With an argument it is a command by itself. */
	if (argc == 1) {
		ready();
		/* The window of several engines begins a few milliseconds after the word. */
		pause_ns(50000000);
	}
	for (int i = 0; i < NUMBER; i++) {
		struct call *call = &calls[i];

		call->begin = clock_ns(CLOCK_MONOTONIC);
		begin();
		if (!setjmp(out))
			handle(call, i, 0);
		finish();
		call->end = clock_ns(CLOCK_MONOTONIC);
	}
	if (argc > 1)
		return 0;
	for (int i = 0; i < NUMBER; i++)
		say("{\"begin_ns\": %lld, \"ns\": %lld, \"served_ns\": %lld, \"nap_ns\": %lld}\n", calls[i].begin,
		    calls[i].end - calls[i].begin, calls[i].serves ? calls[i].serves - calls[i].served : 0, calls[i].nap);
	return finished();
}
"#;

/// Each call is a cycle or was left, but for those with a switch that the machine's sandbox hid: these are counted as losses.
fn assert_each_told(report: &Value, [returned, left]: [u64; 2]) {
    let cycles = &report["cycles"];
    let (count, cut) = (number(&cycles["homes"][0], "count"), number(cycles, "cut"));
    let broken = number(&report["losses"], "cycles_broken");
    assert!(count <= returned && cut <= left, "{cycles:#}");
    assert_eq!(count + cut + broken, returned + left, "{cycles:#}");
    assert_within("hidden", broken, ..=returned / 100, cycles);
}

/// One home, of pieces as long as the calls; the longest slept for as long as they did, and those with a nap for so
/// much of it, ns: an emulated CPU takes as long as it likes on the way into one.
fn assert_told(report: &Value, place: &str, calls: &[Value], least_asleep: u64) {
    let cycles = &report["cycles"];
    let [home] = list(cycles, "homes") else {
        panic!("one home: {cycles:#}")
    };
    assert_eq!(home["kind"], "function", "{cycles:#}");
    assert_eq!(home["place"], place, "{cycles:#}");
    for (what, percent) in [("p50_ns", 50), ("p99_ns", 99), ("max_ns", 100)] {
        let [least, most] = ["served_ns", "ns"].map(|field| percentile(calls, field, percent));
        let bounds = least - least * 32 / 1000..=most + most * 32 / 1000;
        assert_within(what, number(home, what), bounds, cycles);
    }
    let longest = list(&cycles["slowest"], "cycles");
    assert_eq!(longest.len(), 5, "{cycles:#}");
    for one in longest {
        let begin_ns = number(one, "begin_ns");
        let until = |call: &Value| number(call, "begin_ns") + number(call, "ns");
        let is_it = |call: &&Value| (number(call, "begin_ns")..=until(call)).contains(&begin_ns);
        let call = calls.iter().find(is_it).expect("a call that it is in");
        let end_ns = begin_ns + number(one, "ns");
        assert_within("end, ns", end_ns, ..=until(call), call);
        let lines = list(one, "lines").iter();
        let asleep = sum(lines.filter(|line| line["kind"] == "sleep"), "ns");
        // It was made runnable when its clock rang; what it waited for a CPU then is in the nap by its own clock.
        let nap_ns = number(call, "nap_ns");
        assert_within("asleep, ns", asleep, nap_ns.min(least_asleep)..=nap_ns, one);
    }
}

/// All calls, the longest first.
fn calls_in(report: &Value, all: Vec<Value>) -> Vec<Value> {
    let count = all.len();
    let calls = logged(report, &[json!({ "cycles": all })]);
    assert_eq!(calls.len(), count, "all are in the window");
    calls
}

#[test]
fn calls_are_pieces_of_work_but_those_that_never_return() {
    let _machine = Machine::alone();
    let options = format!("--from uprobe:handle {ALL}");
    let workload = Program::c("handler", CALLS, "").started("");
    let (report, results) = traced("why", &options, workload);
    let has_returned = |call: &Value| number(call, "served_ns") > 0;
    let (returned, left): (Vec<Value>, Vec<Value>) = results.into_iter().partition(has_returned);
    assert_eq!((returned.len(), left.len()), (993, 10));
    assert_told(
        &report,
        "handle to its return",
        &calls_in(&report, returned),
        0,
    );
    assert_each_told(&report, [993, 10]);
}

#[test]
fn two_functions_tell_where_work_begins_and_ends() {
    let _machine = Machine::alone();
    let program = Program::c("handler", CALLS, "");
    let file = program.text().to_owned();
    let options =
        format!("--from uprobe:{file}:begin --to uretprobe:{file}:finish --slowest 1% {ALL}");
    let (report, results) = traced("why", &options, program.started(""));
    assert_eq!(results.len(), 1003);
    let calls = calls_in(&report, results);
    // A nap takes 3.5 ms and more.
    assert_told(&report, "begin to the return of finish", &calls, 3_000_000);
    assert_each_told(&report, [1003, 0]);
}

#[test]
fn calls_of_a_command_are_all_seen() {
    let _machine = Machine::alone();
    let program = Program::c("handler", CALLS, "");
    let options = format!(
        "-j --from uprobe:handle --max-overhead 100 -- {} all",
        program.text()
    );
    let report = Tool::run("why", options).ok().report();
    assert_each_told(&report, [993, 10]);
}
