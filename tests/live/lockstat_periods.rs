//! lockstat's intervals against a program that knows when each of its waits began and ended.

use std::process::Command;

use serde_json::Value;

use crate::c_program;
use crate::kernel::alone;
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

const PERIODS: &str = concat!(
    include_str!("../workloads/locks/stage.h"),
    include_str!("../workloads/locks/periods.c")
);

/// The program's clock is read before its thread sleeps and after it has run again: 2 % of an interval.
const SLACK_NS: u64 = 10_000_000;

/// What of [begun, ended) lies in [from, to).
fn part_ns((begun, ended): (u64, u64), from: u64, to: u64) -> u64 {
    ended.min(to).saturating_sub(begun.max(from))
}

/// The lock's contentions, of which open, and time in one report.
fn held(report: &Value) -> (u64, u64, u64) {
    let locks = report["locks"].as_array().expect("a list");
    let ours = locks
        .iter()
        .find(|lock| lock["name"] == "locks.bss: lock_held");
    ours.map_or((0, 0, 0), |lock| {
        let field = |name| number(lock, name);
        (field("contentions"), field("open"), field("total_ns"))
    })
}

/// What a program says of its waits, and lockstat, every half second.
fn watched(name: &'static str, source: &str, args: &[&str]) -> (Vec<Value>, Output) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = c_program::compile(dir.path(), name, source, &["-pthread"]);
    let (mut program, pid) = Workload::spawn(name, Command::new(program));
    let pid = pid.to_string();
    let common = ["-U", "-j", "-i", "500ms", "-p", &pid];
    let tool = Tool::start("lockstat", &[&common, args].concat());
    tool.wait_attached();
    program.go();
    let said = program.results();
    tool.interrupt();
    let output = tool.finish();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    (said, output)
}

#[test]
fn a_wait_across_intervals_is_one_wait_with_its_time_in_each() {
    let Some(_machine) = alone() else {
        return;
    };
    let (said, output) = watched("locks", PERIODS, &[]);
    let waits: Vec<(u64, u64)> = said
        .iter()
        .map(|wait| (number(wait, "begun_ns"), number(wait, "ended_ns")))
        .collect();
    let (mut contentions, mut total_ns, mut across) = (0, 0, 0);
    for report in output.reports() {
        let from = number(&report, "start_ns");
        let to = from + number(&report, "duration_ns");
        let (count, open, ns) = held(&report);
        // Whoever comes to the lock at the very edge may sleep on either side of it.
        let begun_in = |from: u64, to: u64| {
            waits
                .iter()
                .filter(|(begun, _)| (from..to).contains(begun))
                .count() as u64
        };
        let at_least = begun_in(from, to - SLACK_NS);
        assert!(
            (at_least..=begun_in(from - SLACK_NS, to)).contains(&count),
            "{count} at {from} to {to}, of {waits:?}"
        );
        let spans = |slack: u64| {
            waits
                .iter()
                .filter(|(begun, ended)| begun + slack < to && *ended > to + slack)
                .count() as u64
        };
        assert!((spans(SLACK_NS)..=1).contains(&open), "{open}: {report}");
        let own_ns: u64 = waits.iter().map(|wait| part_ns(*wait, from, to)).sum();
        assert!(ns.abs_diff(own_ns) <= SLACK_NS, "{ns}, {own_ns}: {report}");
        contentions += count;
        total_ns += ns;
        across += open;
    }
    let own_ns: u64 = waits.iter().map(|(begun, ended)| ended - begun).sum();
    eprintln!("{contentions} waits, {total_ns} ns of {own_ns}, {across} across an edge");
    assert_eq!(contentions, waits.len() as u64);
    assert!(
        total_ns.abs_diff(own_ns) <= own_ns / 50,
        "{total_ns}, {own_ns}"
    );
    // Some take longer than an interval.
    assert!(across > 0, "{}", output.stdout);
}

/// A wait for one futex that goes on as one for another, over the edge of an interval.
const REQUEUED: &str = r#"
#include <linux/futex.h>
#include <pthread.h>
int word_from, word_to;
static long long waited;
static long futex(int *word, int operation, int value, long limit, int *other)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, limit, other, 0);
}
static void *waits(void *argument)
{
	waited = -clock_ns(CLOCK_MONOTONIC);
	futex(&word_from, FUTEX_WAIT, 0, 0, NULL);
	waited += clock_ns(CLOCK_MONOTONIC);
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
		say("{\"waited_ns\": %lld}\n", waited);
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
    let (said, output) = watched("moved", REQUEUED, &["--strict", "--class", "all"]);
    let (mut contentions, mut total_ns, mut longest_ns) = (0, 0, 0);
    for report in output.reports() {
        let locks = report["locks"].as_array().expect("a list");
        let ours = locks.iter().filter(|lock| {
            let name = lock["name"].as_str().unwrap_or_default();
            name.starts_with("moved.bss: word_")
        });
        let (mut in_report_ns, duration_ns) = (0, number(&report, "duration_ns"));
        for lock in ours {
            contentions += number(lock, "contentions");
            in_report_ns += number(lock, "total_ns");
        }
        total_ns += in_report_ns;
        longest_ns = longest_ns.max(in_report_ns.saturating_sub(duration_ns));
    }
    let own_ns: u64 = said.iter().map(|wait| number(wait, "waited_ns")).sum();
    assert_eq!(contentions, 2 * said.len() as u64, "{}", output.stdout);
    assert!(
        total_ns.abs_diff(own_ns) <= SLACK_NS && longest_ns <= SLACK_NS,
        "{total_ns}, {own_ns}: {}",
        output.stdout
    );
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
        let interval_ns = number(report, "duration_ns");
        let idle_ns = number(idle, "total_ns");
        assert!(idle_ns.abs_diff(interval_ns) <= SLACK_NS, "{report}");
    }
    let waits: u64 = reports
        .iter()
        .map(|report| number(&report["left_out"][0], "waits"))
        .sum();
    assert_eq!(waits, 1, "counted once: {}", output.stdout);
}
