//! `--max-overhead` where it is enough to leave out the user stacks of short waits.

use crate::budget::held;
use crate::kernel::{has_tracepoint, skip};
use crate::prelude::*;

/// Two threads that hand each other a byte from deep within their functions, on one CPU: every turn is a wait of microseconds.
/// Beside them threads that nap, whose waits take nearly all the time. All know how often the kernel took them off their CPU.
const DEEP: &str = r#"
#include <pthread.h>

#define DEPTH 60
#define NAPPERS 100

struct thread {
	int number;
	long tid, switches;
};

static volatile int over, sink;
static int there[2], back[2];
static pthread_barrier_t begin;

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

static void take_turns(int first)
{
	char c = 0;

	if (first)
		while (!over && write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1)
			;
	else
		while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
			;
	close(first ? there[1] : back[1]);
}

__attribute__((noinline)) static void descend(int depth, int number)
{
	WITH_FRAME;
	if (depth)
		descend(depth - 1, number);
	else if (number < 2)
		take_turns(number == 0);
	else
		while (!over)
			usleep(5000 + 300 * (number % 50));
	sink++;
}

static void *work(void *argument)
{
	struct thread *thread = argument;

	run_on(thread->number < 2 ? 1 : 0);
	pthread_barrier_wait(&begin);
	thread->tid = syscall(SYS_gettid);
	thread->switches = switches();
	descend(DEPTH, thread->number);
	thread->switches = switches() - thread->switches;
	return NULL;
}

int main(int argc, char **argv)
{
	static struct thread threads[2 + NAPPERS];
	pthread_t ids[2 + NAPPERS];

	pthread_barrier_init(&begin, NULL, 2 + NAPPERS);
	if (pipe(there) || pipe(back))
		return 1;
	ready();
	for (int i = 0; i < 2 + NAPPERS; i++) {
		threads[i].number = i;
		pthread_create(&ids[i], NULL, work, &threads[i]);
	}
	sleep(3);
	over = 1;
	for (int i = 0; i < 2 + NAPPERS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < 2 + NAPPERS; i++)
		say("{\"tid\": %ld, \"takes_turns\": %s, \"switches\": %ld}\n", threads[i].tid, i < 2 ? "true" : "false",
		    threads[i].switches);
	return finished();
}
"#;

/// What a run under `percent` found, and what the program says.
fn run(program: &Program, percent: f64, options: &str) -> (Value, Vec<Value>) {
    let mut workload = program.start("");
    let options = format!("-p {} {options}", workload.pid());
    let (output, results) = held("offcputime", &options, percent, || workload.work());
    workload.finish();
    eprintln!("{}", output.stderr);
    (output.report(), results)
}

fn spent_percent(report: &Value) -> f64 {
    let budget = &report["cost"]["budget"];
    assert_eq!(budget["exact"], true, "{budget}");
    budget["spent_percent"].as_f64().expect("a number")
}

/// Waits and their time, ns, of the program's stacks that `is_wanted`.
fn waits(report: &Value, is_wanted: impl Fn(&Value) -> bool) -> (u64, u64) {
    let stacks = list(report, "stacks").iter();
    let wanted = stacks.filter(|stack| is_wanted(stack));
    wanted.fold((0, 0), |(count, ns), stack| {
        (count + number(stack, "count"), ns + weight(stack))
    })
}

fn is_left_out(stack: &Value) -> bool {
    stack["user"][0]["name"] == "[user stack left out]"
}

#[test]
#[ignore = "statistical: make truth"]
fn stacks_of_short_waits_are_left_out_before_any_time_is() {
    let _machine = Machine::alone();
    // Older kernels walk stacks before the length of a wait is known.
    if !has_tracepoint("sched_exit_tp") {
        return skip("there is no sched_exit_tp");
    }
    let program = Program::c("deep", DEEP, "-pthread");
    let (all, _) = run(&program, 100.0, "");
    let (none, _) = run(&program, 100.0, "-K");
    let (with, without) = (spent_percent(&all), spent_percent(&none));
    assert_within("% with stacks", with, 1.5 * without.., "% without");
    assert_eq!(waits(&all, is_left_out), (0, 0));

    let (report, results) = run(&program, (with + without) / 2.0, "");
    spent_percent(&report);
    let said = &report["cost"]["budget"]["stacks_left_out"];
    let (left, left_ns) = waits(&report, is_left_out);
    assert_eq!(left, number(said, "waits"));
    assert_eq!(left_ns, number(said, "ns"));
    // Every switch of every thread is a wait, with a stack or without.
    let switches = sum(&results, "switches");
    let workers: Vec<u64> = results.iter().map(|thread| number(thread, "tid")).collect();
    let is_worker = |stack: &Value| workers.contains(&number(stack, "tid"));
    let (count, total_ns) = waits(&report, is_worker);
    // Before it counts and after, a thread is switched for its beginning and its end. A sandbox's switches may be hidden from us.
    let hidden = report["losses"]["out_of_order"].as_u64().unwrap_or(0);
    let bounds = switches - hidden..=switches + 8 * workers.len() as u64;
    assert_within("waits", count, bounds, hidden);
    assert!(left > switches / 2, "{left} of {switches} left out");
    assert!(left_ns < total_ns / 20, "{left_ns} of {total_ns} ns");
    // Whoever naps does so for long.
    for thread in results
        .iter()
        .filter(|thread| thread["takes_turns"] == false)
    {
        let of_thread = |stack: &Value| stack["tid"] == thread["tid"];
        let (_, slept_ns) = waits(&report, |stack| {
            of_thread(stack) && stack["user_end"] == "root"
        });
        assert!(slept_ns > 2_800_000_000, "{slept_ns} ns of 3 s: {thread}");
    }
}
