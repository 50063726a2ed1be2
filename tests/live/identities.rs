//! Who is who, and when: numbers that others come to have, children that a tool inherits, a namespace's clock, a command's end.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::c_program::{compile, run};
use crate::cpu_times::{stolen_samples, watch_cpus};
use crate::kernel::alone;
use crate::symbols::stacks;
use crate::targets::{Tools, groups};
use crate::workload::{Workload, number};

/// Takes the number in its first argument, with luck that is none (clone3), and is busy under it.
const REUSE: &str = r#"
#include <linux/sched.h>
#include <sys/wait.h>
int main(int argc, char **argv)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	pid_t wanted = atoi(argv[1]);
	struct clone_args how = {
		.exit_signal = 17, .set_tid = (unsigned long)&wanted, .set_tid_size = 1
	};
	long long start;
	long child;

	ready();
	child = syscall(SYS_clone3, &how, sizeof(how));
	if (child < 0)
		return 1;
	if (!child) {
		for (int i = 0; i < 100; i++) {
			nanosleep(&moment, NULL);
			start = clock_ns(CLOCK_MONOTONIC);
			while (clock_ns(CLOCK_MONOTONIC) < start + 1000000)
				;
		}
		_exit(0);
	}
	waitpid(child, NULL, 0);
	say("{\"child\": %ld}\ndone\n", child);
	await_go();
	return 0;
}
"#;

#[test]
fn whoever_comes_to_have_the_number_asked_for_is_not_meant() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "reuse", REUSE, &[]);
    for option in ["-p", "-t"] {
        let mut meant = Workload::start("spinner", &["--threads", "1", "--seconds", "0.2"]);
        let id = meant.pid();
        let mut command = Command::new(&program);
        command.arg(id.to_string());
        let (mut other, _) = Workload::spawn("reuse", command);
        let tools = Tools::start(&[option, &id.to_string()]);
        meant.go();
        meant.results();
        meant.finish();
        other.go();
        assert_eq!(number(&other.results()[0], "child"), u64::from(id));
        let [offcputime, profile, runqlat] = tools.reports().reports;
        other.finish();
        for entries in [stacks(&offcputime), stacks(&profile), groups(&runqlat)] {
            for entry in entries {
                assert_ne!(entry["comm"], "reuse", "{option}: {entry}");
            }
        }
        // Who was meant was there.
        assert!(!stacks(&offcputime).is_empty());
    }
}

/// Three threads that sleep again and again, for a while.
const CROWD: &str = r#"
#include <pthread.h>
static void *nap(void *argument)
{
	struct timespec moment = { .tv_nsec = 5000000 };

	for (int i = 0; i < 500; i++)
		nanosleep(&moment, NULL);
	return argument;
}
int main(void)
{
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, nap, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
"#;

/// `server & exec offcputime -p $!`: the tool has the shell's number, and so the shell's child.
#[test]
fn a_child_that_the_tool_inherits_is_traced_with_all_its_threads() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "crowd", CROWD, &["-pthread"]);
    let script = "\"$0\" > /dev/null & exec \"$1\" -q -j -p $! 1";
    let output = run(Command::new("sh")
        .args(["-c", script])
        .args([program, crate::built("offcputime")]));
    assert_eq!(busy_threads(&output, 20), 3, "{output}");
}

/// Threads with more waits than that.
fn busy_threads(report: &str, least: u64) -> usize {
    let report: Value = serde_json::from_str(report).expect("JSON");
    let mut waits: BTreeMap<u64, u64> = BTreeMap::new();
    for stack in stacks(&report) {
        *waits.entry(number(stack, "tid")).or_default() += number(stack, "count");
    }
    waits.values().filter(|waits| **waits > least).count()
}

/// The clock of a time namespace is days ahead or behind, that of events never.
#[test]
fn a_time_namespaces_clock_changes_nothing() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "crowd", CROWD, &["-pthread"]);
    for offset in ["200000", "-3"] {
        let output = run(Command::new("unshare")
            .args(["--time", &format!("--monotonic={offset}")])
            .arg(crate::built("offcputime"))
            .args(["-q", "-j", "--"])
            .arg(&program));
        assert_eq!(busy_threads(&output, 499), 3, "{offset} s: {output}");
    }
}

/// Says when it is about to end, with a gigabyte to give back.
const RICH: &str = r#"
int main(void)
{
	size_t bytes = 1 << 30;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE))
		return 1;
	memset(memory, 1, bytes);
	say("%lld\n", clock_ns(CLOCK_REALTIME));
	return 0;
}
"#;

#[test]
fn a_commands_end_is_its_work_too() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "rich", RICH, &[]);
    let script = format!("{}; date +%s%N", program.display());
    watch_cpus();
    let output = run(Command::new(crate::built("profile"))
        .args(["-q", "-j", "-F", "4999", "--", "sh", "-c", &script]));
    let mut lines = output.lines();
    let mut moment = || -> u64 { lines.next().expect("two times").parse().expect("ns") };
    let (began, ended) = (moment(), moment());
    let report: Value = serde_json::from_str(lines.next().expect("a report")).expect("JSON");
    let is_exit = |stack: &&Value| {
        let kernel = stack["kernel"].as_array().expect("frames");
        kernel.iter().any(|frame| frame["name"] == "do_exit")
    };
    let found = stacks(&report).iter().filter(is_exit);
    let found: u64 = found.map(|stack| number(stack, "count")).sum();
    // date has to begin before it can say when.
    let (least, most) = ((ended - began) * 7 / 10, ended - began);
    let samples = |ns: u64| ns * 4_999 / 1_000_000_000;
    // Of a thread that does not run there are none.
    let away = stolen_samples(4_999.0) as u64;
    let range = samples(least).saturating_sub(away)..=samples(most) + 1;
    assert!(
        *range.start() > 50 && range.contains(&found),
        "{found} samples, {range:?}: {report:#}"
    );
}
