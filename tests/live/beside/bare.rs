//! Tools where less is there than on the machine that they were written on.

use std::process::Command;

use oracle::{Below, Engine, Span};
use serde_json::Value;
use tempfile::TempDir;

use crate::c_program::{compile, run};
use crate::kernel::Machine;
use crate::off_cpu::{Times, sees_hidden};
use crate::run_queue::assert_waits;
use crate::targets::{phase, start_phases};
use crate::tool::Tool;
use crate::workload::number;

/// A mount namespace without tracefs and debugfs.
const WITHOUT_TRACEFS: &str = "umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null";

/// One with hardly anything: no file systems for tracing, BPF objects and cgroups, nothing that can be written, no sysctls.
const POOR: &str = "umount -l /sys/kernel/tracing /sys/kernel/debug /sys/fs/bpf /sys/fs/cgroup 2>/dev/null
    mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /proc/sys && mount -o remount,bind,ro / || exit 99";

/// A tool with an empty environment and without stdin, in words of a shell.
fn destitute(tool: &str, options: &str) -> String {
    let tool = crate::built(tool);
    format!("env -i LANG=C {} {options} <&-", tool.display())
}

/// The report of a tool that runs in a mount namespace that `setup` makes, and mounts nothing there.
fn report_in(setup: &str, tool: &str, options: &str) -> Value {
    let mounts = "$(grep -c . /proc/mounts)";
    let tool = destitute(tool, &format!("-q -j {options}"));
    let script = format!("{setup}\nmounts={mounts}\n{tool} && test $mounts = {mounts}");
    let output = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    serde_json::from_str(&output).expect("one report")
}

/// Where programs lie that run without /tmp.
fn directory() -> TempDir {
    tempfile::tempdir_in("/var/tmp").expect("a directory")
}

/// A holder lets a waiter wait, 23 times, and sleeps at least as often.
pub(crate) const TURNS: &str = r#"
#include <pthread.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int waiter_tid;
static int waits;

static void *waiter(void *unused)
{
	waiter_tid = gettid();
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

/* The time may be over before the thread sleeps. */
static void nap(void)
{
	long before = sleeps_so_far();

	do
		usleep(2000);
	while (sleeps_so_far() == before);
}

int main(void)
{
	for (; waits < 23; waits++) {
		pthread_t thread;
		int value;

		pthread_mutex_lock(&mutex);
		waiter_tid = 0;
		pthread_create(&thread, NULL, waiter, NULL);
		/* 2: locked, and somebody waits. */
		while (__atomic_load_n(&mutex.__data.__lock, __ATOMIC_SEQ_CST) != 2)
			usleep(100);
		await_call(&waiter_tid, SYS_futex);
		nap();
		value = pthread_mutex_unlock(&mutex);
		if (value || pthread_join(thread, NULL))
			return 1;
	}
	return 0;
}
"#;

fn assert_turns_are_seen(setup: &str) {
    let _machine = Machine::beside();
    let dir = directory();
    let program = compile(dir.path(), "turns", TURNS, ["-pthread"]);
    let report = report_in(setup, "lockstat", &format!("-U -- {}", program.display()));
    let locks = report["locks"].as_array().expect("locks");
    let mutexes = locks.iter().filter(|lock| lock["class"] == "mutex");
    let waits: u64 = mutexes.map(|lock| number(lock, "contentions")).sum();
    assert_eq!(waits, 23, "{report:#}");
}

#[test]
fn lockstat_sees_futexes_without_tracefs() {
    assert_turns_are_seen(WITHOUT_TRACEFS);
}

#[test]
fn lockstat_runs_where_hardly_anything_is_there() {
    assert_turns_are_seen(POOR);
}

pub(crate) const CALLS: &str = r"
int main(void)
{
	for (int i = 0; i < 101; i++)
		syscall(SYS_getppid);
	return 0;
}
";

fn assert_calls_are_seen(setup: &str) {
    let _machine = Machine::beside();
    let dir = directory();
    let program = compile(dir.path(), "calls", CALLS, "");
    let event = "-e tracepoint:syscalls:sys_enter_getppid";
    let options = format!("{event} -- {}", program.display());
    let report = report_in(setup, "profile", &options);
    assert_eq!(number(&report["events"], "samples"), 101, "{report:#}");
}

#[test]
fn tracepoints_are_profiled_without_tracefs() {
    assert_calls_are_seen(WITHOUT_TRACEFS);
}

#[test]
fn profile_runs_where_hardly_anything_is_there() {
    assert_calls_are_seen(POOR);
}

#[test]
fn waits_are_counted_where_hardly_anything_is_there() {
    let _machine = Machine::beside();
    let dir = directory();
    let mut workload = start_phases(dir.path(), &["napping"]);
    let tid = u64::from(workload.pid());
    let below = Below::attach_to(&[Engine::Scheduler], workload.pid()).expect("the oracle");
    let start = |name: &str, options: &str| {
        let tool = destitute(name, &format!("-j {options} -p {tid}"));
        let script = format!("{POOR}\nexec {tool}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        let tool = Tool::spawn(name, command);
        tool.wait_attached();
        tool
    };
    let tools = [start("offcputime", "-m 0"), start("runqlat", "-L --wakeup")];
    let logs = below.around().expect("the oracle");
    let napped = phase(&mut workload);
    tools.iter().for_each(Tool::interrupt);
    let [offcputime, runqlat] = tools.map(|tool| tool.finish().report());
    workload.finish();
    let logs = logs.take().expect("whole logs");
    let worked = number(&napped, "start_ns")..number(&napped, "end_ns");
    let times = Times::in_report(&offcputime, &logs, tid, sees_hidden());
    let asleep = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&worked));
    times.assert_inside(&asleep, |stack| stack["reason"] == "sleep");
    let window = number(&runqlat, "start_ns")..number(&runqlat, "end_ns");
    let woken = |wait: &Span| !wait.was_runnable && wait.begins_in(&window);
    assert_waits(&runqlat, &logs, tid, woken);
}

#[test]
fn disks_and_pressure_are_reported_where_hardly_anything_is_there() {
    let _machine = Machine::beside();
    let report = report_in(POOR, "biolatency", "0.2 1");
    let length = |report: &Value| number(report, "end_ns") - number(report, "start_ns");
    assert!(length(&report) >= 200_000_000, "{report:#}");
    assert!(report["disks"].is_array(), "{report:#}");
    let report = report_in(POOR, "pressure", "0.2 1");
    assert!(length(&report) >= 200_000_000, "{report:#}");
    let report = report_in(POOR, "lockstat", "--now");
    assert!(report["waits"].is_array(), "{report:#}");
}
