//! lockstat's intervals against the log of the kernel's events.

use oracle::futex::{Wait, waits};
use oracle::{Bracket, Engine, bracket};

use crate::beside::lockstat_user::locks;
use crate::found::unended;
use crate::lockstat_played::named;
use crate::prelude::*;
use crate::traced::logged_by;

const PERIODS: &str = include_str!("../workloads/locks/periods.c");

/// What a program says of itself, what lockstat says every half second, and each thread's waits in the log.
struct Watched {
    said: Vec<Value>,
    output: Output,
    waits: Vec<Wait>,
}

fn watched(program: &Program, options: &str) -> Watched {
    watched_by(program, options, |_, workload| workload.work())
}

fn watched_by(
    program: &Program,
    options: &str,
    act: impl FnOnce(&Tool, &mut Workload) -> Vec<Value>,
) -> Watched {
    let mut workload = program.start("");
    let args = format!("-U -j -i 500ms -p {} {options}", workload.pid());
    let start = || Tool::start("lockstat", args);
    let engines = &[Engine::Scheduler, Engine::LockCalls];
    let (output, said, logs) = logged_by(engines, start, &mut workload, act);
    workload.finish();
    let of_thread =
        |thread: &Value| waits(&logs, id(thread, "tid"), u64::MAX).expect("logs that agree");
    Watched {
        waits: said.iter().flat_map(of_thread).collect(),
        said,
        output,
    }
}

/// A sum over the locks that are variables whose names begin so.
fn sum_of(report: &Value, variable: &str, field: &str) -> u64 {
    let begin = format!(".bss: {variable}");
    let is_ours = |lock: &&Value| {
        lock["name"]
            .as_str()
            .is_some_and(|name| name.contains(&begin))
    };
    sum(list(report, "locks").iter().filter(is_ours), field)
}

/// Waits in all intervals together are those of the log.
fn assert_all_counted(reports: &[Value], variable: &str, waits: &[Wait]) {
    let counts = reports
        .iter()
        .map(|report| sum_of(report, variable, "contentions"));
    assert_eq!(counts.sum::<u64>(), waits.len() as u64);
}

/// Each interval has of these waits' time what lies in it.
fn assert_times(reports: &[Value], variable: &str, waits: &[Wait]) {
    for report in reports {
        let edges = number(report, "start_ns")..number(report, "end_ns");
        let parts = waits.iter().map(|wait| wait.pair.clipped(&edges));
        let truth: Bracket = parts.collect();
        let own_ns = sum_of(report, variable, "total_ns");
        assert_within("ns", own_ns, truth.least_ns..=truth.most_ns, report);
    }
}

/// It has those that begin in it. Gives how many were open at an interval's end.
fn assert_counts(reports: &[Value], variable: &str, waits: &[Wait]) -> u64 {
    let pairs = || waits.iter().map(|wait| wait.pair);
    let mut across = 0;
    for report in reports {
        let edges = number(report, "start_ns")..number(report, "end_ns");
        let (count, open) = (
            sum_of(report, variable, "contentions"),
            sum_of(report, variable, "open"),
        );
        assert_within("waits", count, bracket::begun_in(pairs(), &edges), report);
        assert_within("open", open, bracket::across(pairs(), edges.end), report);
        across += open;
    }
    across
}

#[test]
fn a_wait_across_intervals_is_one_wait_with_its_time_in_each() {
    let _machine = Machine::alone();
    let mut watched = watched(&locks(PERIODS, ""), "");
    let reports = watched.output.reports();
    let named_lock = |report: &Value| {
        let locks = list(report, "locks");
        (!locks.is_empty()).then(|| address(named(locks, "lock_held")))
    };
    let held = reports.iter().find_map(named_lock).expect("a wait");
    // The thread and main meet at a barrier, too.
    watched.waits.retain(|wait| wait.address == held);
    let waits = &watched.waits;
    assert_eq!(waits.len() as u64, number(&watched.said[0], "waits"));
    assert_times(&reports, "lock_held", waits);
    let across = assert_counts(&reports, "lock_held", waits);
    assert_all_counted(&reports, "lock_held", waits);
    // Some take longer than an interval.
    assert!(across > 0, "{}", watched.output.stdout);
}

/// A wait for one futex that goes on as one for another, each for as long as the test likes.
const REQUEUES: usize = 2;
const REQUEUED: &str = r#"
#include <linux/futex.h>
int word_from, word_to;
static volatile pid_t tid;
static void next_step(void)
{
	say("done\n");
	if (!await_go())
		_exit(0);
}
static long futex(int *word, int operation, int value, long limit, int *other)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, limit, other, 0);
}
static void *waits(void *argument)
{
	tid = syscall(SYS_gettid);
	futex(&word_from, FUTEX_WAIT, 0, 0, NULL);
	return argument;
}
int main(void)
{
	pthread_t thread;

	ready();
	for (int i = 0; i < REQUEUES; i++) {
		tid = 0;
		pthread_create(&thread, NULL, waits, NULL);
		while (!tid)
			sched_yield();
		await_sleep(tid);
		next_step();
		if (futex(&word_from, FUTEX_CMP_REQUEUE, 0, 1, &word_to) != 1)
			return 1;
		next_step();
		if (futex(&word_to, FUTEX_WAKE, 1, 0, NULL) != 1)
			return 1;
		pthread_join(thread, NULL);
		say("{\"tid\": %d}\n", tid);
		next_step();
	}
	return finished();
}
"#;

/// Each step of the program comes soon after an interval's edge, when the tool has looked at what was open there: a thread that runs
/// while it is looked at loses its stack, and says so.
fn step_between_edges(tool: &Tool, workload: &mut Workload) -> Vec<Value> {
    let step = |_| {
        tool.wait_next_report();
        workload.work()
    };
    // Begins the wait, moves it, ends it; the last step ends the program's loop.
    (0..3 * REQUEUES + 1).flat_map(step).collect()
}

#[test]
fn a_requeued_wait_across_intervals_is_counted_once_at_each_moment() {
    let _machine = Machine::alone();
    let program = locks(REQUEUED, &format!("-DREQUEUES={REQUEUES}"));
    let watched = watched_by(&program, "--class all", step_between_edges);
    assert_eq!(watched.waits.len(), 2 * watched.said.len());
    let reports = watched.output.reports();
    for report in &reports {
        unended(report);
    }
    assert_times(&reports, "word_", &watched.waits);
    assert_all_counted(&reports, "word_", &watched.waits);
}

/// A thread that waits for a condition all the while.
const IDLE: &str = r#"
#include <pthread.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static volatile pid_t idle_tid;
static void *idles(void *argument)
{
	pthread_mutex_lock(&mutex);
	idle_tid = syscall(SYS_gettid);
	pthread_cond_wait(&never, &mutex);
	return argument;
}
int main(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, idles, NULL);
	while (!idle_tid)
		;
	await_sleep(idle_tid);
	ready();
	return finished();
}
"#;

#[test]
fn a_wait_longer_than_intervals_is_in_what_each_of_them_leaves_out() {
    let _machine = Machine::alone();
    let mut workload = locks(IDLE, "").started("");
    let args = format!("-U -j -i 500ms -p {}", workload.pid());
    let tool = Tool::attached("lockstat", args);
    tool.wait_reports(3);
    let output = tool.end();
    workload.work();
    workload.finish();
    let reports = output.reports();
    for report in &reports {
        let mut left_out = list(report, "left_out").iter();
        let idle = left_out.find(|sum| sum["class"] == "cond");
        let idle = idle.unwrap_or_else(|| panic!("no cond in {report}"));
        assert_eq!(idle["total_ns"], report["duration_ns"], "{report}");
    }
    let waits = sum(&reports, "left_out.0.waits");
    assert_eq!(waits, 1, "counted once: {}", output.stdout);
}
