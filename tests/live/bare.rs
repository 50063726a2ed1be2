//! Tools where less is there than on the machine that they were written on.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::{compile, run};
use crate::kernel::alone;
use crate::workload::number;

/// Runs a tool that is to trace `program` in a mount namespace without tracefs and debugfs; its report.
fn without_tracefs(tool: &str, options: &str, program: &Path) -> Value {
    let script = format!(
        "umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; {} {options} -q -j -- {} && grep -c tracefs /proc/mounts",
        crate::built(tool).display(),
        program.display()
    );
    // grep's status is 1: there is none, and the tool has mounted none.
    let output = run(Command::new("unshare").args([
        "--mount",
        "sh",
        "-c",
        &format!("{script}; test $? = 1"),
    ]));
    let mut lines = output.lines();
    let report = lines.next().expect("a report");
    assert_eq!(lines.next(), Some("0"), "{output}");
    serde_json::from_str(report).expect("JSON")
}

/// A holder lets a waiter wait, 23 times.
const TURNS: &str = r#"
#include <pthread.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int waits;

static void *waiter(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(void)
{
	for (; waits < 23; waits++) {
		pthread_t thread;
		int value;

		pthread_mutex_lock(&mutex);
		pthread_create(&thread, NULL, waiter, NULL);
		/* 2: locked, and somebody waits. */
		while (__atomic_load_n(&mutex.__data.__lock, __ATOMIC_SEQ_CST) != 2)
			usleep(100);
		usleep(2000);
		value = pthread_mutex_unlock(&mutex);
		if (value || pthread_join(thread, NULL))
			return 1;
	}
	return 0;
}
"#;

#[test]
fn lockstat_sees_futexes_without_tracefs() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "turns", TURNS, &["-pthread"]);
    let report = without_tracefs("lockstat", "-U", &program);
    let locks = report["locks"].as_array().expect("locks");
    let mutexes = locks.iter().filter(|lock| lock["class"] == "mutex");
    let waits: u64 = mutexes.map(|lock| number(lock, "contentions")).sum();
    assert_eq!(waits, 23, "{report:#}");
}

const CALLS: &str = r"
int main(void)
{
	for (int i = 0; i < 101; i++)
		syscall(SYS_getppid);
	return 0;
}
";

#[test]
fn tracepoints_are_profiled_without_tracefs() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "calls", CALLS, &[]);
    let event = "-e tracepoint:syscalls:sys_enter_getppid";
    let report = without_tracefs("profile", event, &program);
    assert_eq!(number(&report["events"], "samples"), 101, "{report:#}");
}
