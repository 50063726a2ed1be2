//! lockstat's intervals against the log of the kernel's events.

use std::process::Command;

use oracle::futex::{Wait, waits};
use oracle::{Bracket, Engine};
use serde_json::Value;

use crate::c_program;
use crate::kernel::alone;
use crate::lockstat_played::{address, named};
use crate::tool::{Output, Tool};
use crate::traced::logged;
use crate::workload::{Workload, number};

const PERIODS: &str = concat!(
    include_str!("../workloads/locks/stage.h"),
    include_str!("../workloads/locks/periods.c")
);

/// What a program says of itself, what lockstat says every half second, and each thread's waits in the log.
struct Watched {
    said: Vec<Value>,
    output: Output,
    waits: Vec<Wait>,
}

fn watched(name: &'static str, source: &str, args: &[&str]) -> Watched {
    let dir = tempfile::tempdir().expect("a directory");
    let program = c_program::compile(dir.path(), name, source, &["-pthread"]);
    let (mut program, pid) = Workload::spawn(name, Command::new(program));
    let pid = pid.to_string();
    let common = ["-U", "-j", "-i", "500ms", "-p", &pid];
    let start = || Tool::start("lockstat", &[&common, args].concat());
    let (output, said, logs) = logged(&[Engine::Scheduler, Engine::Calls], start, &mut program);
    program.finish();
    let of_thread = |thread: &Value| {
        let tid = u32::try_from(number(thread, "tid")).expect("a thread ID");
        waits(&logs, tid, u64::MAX).expect("logs that agree")
    };
    Watched {
        waits: said.iter().flat_map(of_thread).collect(),
        said,
        output,
    }
}

/// A sum over the locks that are variables whose names begin so.
fn sum(report: &Value, variable: &str, field: &str) -> u64 {
    let begin = format!(".bss: {variable}");
    let locks = report["locks"].as_array().expect("a list").iter();
    let ours = locks.filter(|lock| {
        let name = lock["name"].as_str();
        name.is_some_and(|name| name.contains(&begin))
    });
    ours.map(|lock| number(lock, field)).sum()
}

/// Waits in all intervals together.
fn all_of(reports: &[Value], variable: &str) -> u64 {
    let counts = reports
        .iter()
        .map(|report| sum(report, variable, "contentions"));
    counts.sum()
}

/// Each interval has of these waits' time what lies in it.
fn assert_times(reports: &[Value], variable: &str, waits: &[Wait]) {
    for report in reports {
        let edges = number(report, "start_ns")..number(report, "end_ns");
        let parts = waits.iter().map(|wait| wait.pair.clipped(&edges));
        let truth: Bracket = parts.collect();
        let own_ns = sum(report, variable, "total_ns");
        eprintln!("{own_ns} ns; {truth:?}");
        assert!(
            (truth.least_ns..=truth.most_ns).contains(&own_ns),
            "{own_ns} ns; {truth:?}: {report}"
        );
    }
}

/// It has those that begin in it. Returns how many were open at an interval's end.
fn assert_counts(reports: &[Value], variable: &str, waits: &[Wait]) -> u64 {
    let mut across = 0;
    for report in reports {
        let edges = number(report, "start_ns")..number(report, "end_ns");
        let begun = oracle::bracket::begun_in(waits.iter().map(|wait| wait.pair), &edges);
        let open = oracle::bracket::across(waits.iter().map(|wait| wait.pair), edges.end);
        let count = sum(report, variable, "contentions");
        let own_open = sum(report, variable, "open");
        eprintln!("{count} waits, {own_open} open; {begun:?}, {open:?}");
        assert!(begun.contains(&count), "{count}, {begun:?}: {report}");
        assert!(open.contains(&own_open), "{own_open}, {open:?}: {report}");
        across += own_open;
    }
    across
}

#[test]
fn a_wait_across_intervals_is_one_wait_with_its_time_in_each() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut watched = watched("locks", PERIODS, &[]);
    let reports = watched.output.reports();
    let named_lock = |report: &Value| {
        let locks = report["locks"].as_array().expect("a list");
        (!locks.is_empty()).then(|| address(named(locks, "lock_held")))
    };
    let held = reports.iter().find_map(named_lock).expect("a wait");
    // The thread and main meet at a barrier, too.
    watched.waits.retain(|wait| wait.address == held);
    assert_eq!(
        watched.waits.len() as u64,
        number(&watched.said[0], "waits")
    );
    assert_times(&reports, "lock_held", &watched.waits);
    let across = assert_counts(&reports, "lock_held", &watched.waits);
    assert_eq!(all_of(&reports, "lock_held"), watched.waits.len() as u64);
    // Some take longer than an interval.
    assert!(across > 0, "{}", watched.output.stdout);
}

/// A wait for one futex that goes on as one for another, over the edge of an interval.
const REQUEUED: &str = r#"
#include <linux/futex.h>
#include <pthread.h>
int word_from, word_to;
static pid_t tid;
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
static void moment(long ms)
{
	struct timespec time = { .tv_nsec = ms * 1000000 };

	nanosleep(&time, NULL);
}
int main(void)
{
	pthread_t thread;

	ready();
	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, NULL, waits, NULL);
		moment(100);
		if (futex(&word_from, FUTEX_CMP_REQUEUE, 0, 1, &word_to) != 1)
			return 1;
		moment(600);
		if (futex(&word_to, FUTEX_WAKE, 1, 0, NULL) != 1)
			return 1;
		pthread_join(thread, NULL);
		say("{\"tid\": %d}\n", tid);
	}
	say("done\n");
	await_go();
	return 0;
}
"#;

#[test]
fn a_requeued_wait_across_intervals_is_counted_once_at_each_moment() {
    let Some(_machine) = alone() else {
        return;
    };
    let watched = watched("moved", REQUEUED, &["--strict", "--class", "all"]);
    assert_eq!(watched.waits.len(), 2 * watched.said.len());
    let reports = watched.output.reports();
    assert_times(&reports, "word_", &watched.waits);
    assert_eq!(all_of(&reports, "word_"), watched.waits.len() as u64);
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
	say("done\n");
	await_go();
	return 0;
}
"#;

#[test]
fn a_wait_longer_than_intervals_is_in_what_each_of_them_leaves_out() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let stage = include_str!("../workloads/locks/stage.h");
    let source = format!("{stage}{IDLE}");
    let program = c_program::compile(dir.path(), "idle", &source, &["-pthread"]);
    let (mut program, pid) = Workload::spawn("idle", Command::new(program));
    let pid = pid.to_string();
    let args = ["-U", "-j", "-i", "500ms", "-p", &pid, "1500ms"];
    let output = Tool::start("lockstat", &args).finish();
    program.go();
    program.results();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let reports = output.reports();
    assert!(reports.len() >= 3, "{}", output.stdout);
    for report in &reports {
        let left_out = report["left_out"].as_array().expect("a list");
        let idle = left_out.iter().find(|sum| sum["class"] == "cond");
        let idle = idle.unwrap_or_else(|| panic!("no cond in {report}"));
        assert_eq!(idle["total_ns"], report["duration_ns"], "{report}");
    }
    let waits: u64 = reports
        .iter()
        .map(|report| number(&report["left_out"][0], "waits"))
        .sum();
    assert_eq!(waits, 1, "counted once: {}", output.stdout);
}
