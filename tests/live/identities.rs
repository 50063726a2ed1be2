//! Who is who, and when: numbers that others come to have, children that a tool inherits, a namespace's clock, a command's end.

use std::collections::BTreeMap;
use std::process::Command;

use crate::c_program::run;
use crate::cpu_times::{stolen_samples, watch_cpus};
use crate::prelude::*;
use crate::symbols::stacks;
use crate::targets::{Tools, groups};

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
	say("{\"child\": %ld}\n", child);
	return finished();
}
"#;

#[test]
fn whoever_comes_to_have_the_number_asked_for_is_not_meant() {
    let _machine = Machine::alone();
    let program = Program::c("reuse", REUSE, "");
    for option in ["-p", "-t"] {
        let mut meant = Workload::start("spinner", "--threads 1 --seconds 0.2");
        let id = meant.pid();
        let mut other = program.start(id.to_string());
        let tools = Tools::start(&format!("{option} {id}"));
        meant.work();
        meant.finish();
        assert_eq!(number(&other.work()[0], "child"), u64::from(id));
        let [offcputime, profile, runqlat] = tools.reports().reports;
        other.finish();
        for entry in [stacks(&offcputime), stacks(&profile), groups(&runqlat)].concat() {
            assert_ne!(entry["comm"], "reuse", "{option}: {entry}");
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
    let _machine = Machine::alone();
    let program = Program::c("crowd", CROWD, "-pthread");
    let script = "\"$0\" > /dev/null & exec \"$1\" -q -j -p $! 1";
    let output = run(Command::new("sh")
        .args(["-c", script])
        .args([program.path(), &crate::built("offcputime")]));
    assert_eq!(busy_threads(&output, 20), 3, "{output}");
}

/// Threads with more waits than that.
fn busy_threads(report: &str, least: u64) -> usize {
    let report = json(report);
    let mut waits: BTreeMap<u64, u64> = BTreeMap::new();
    for stack in stacks(&report) {
        *waits.entry(number(stack, "tid")).or_default() += number(stack, "count");
    }
    waits.values().filter(|waits| **waits > least).count()
}

/// The clock of a time namespace is days ahead or behind, that of events never.
#[test]
fn a_time_namespaces_clock_changes_nothing() {
    let _machine = Machine::alone();
    let program = Program::c("crowd", CROWD, "-pthread");
    for offset in ["200000", "-3"] {
        let output = run(Command::new("unshare")
            .args(["--time", &format!("--monotonic={offset}")])
            .arg(crate::built("offcputime"))
            .args(["-q", "-j", "--"])
            .arg(program.path()));
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
    let _machine = Machine::alone();
    let program = Program::c("rich", RICH, "");
    let script = format!("{}; date +%s%N", program.text());
    watch_cpus();
    let output = run(Command::new(crate::built("profile"))
        .args(["-q", "-j", "-F", "4999", "--", "sh", "-c", &script]));
    let mut lines = output.lines();
    let mut moment = || -> u64 { lines.next().expect("two times").parse().expect("ns") };
    let (began, ended) = (moment(), moment());
    let report = json(lines.next().expect("a report"));
    let is_exit = |stack: &&Value| {
        let mut kernel = list(stack, "kernel").iter();
        kernel.any(|frame| frame["name"] == "do_exit")
    };
    let found = sum(stacks(&report).iter().filter(is_exit), "count");
    // date has to begin before it can say when.
    let (least, most) = ((ended - began) * 7 / 10, ended - began);
    let samples = |ns: u64| ns * 4_999 / 1_000_000_000;
    // Of a thread that does not run there are none.
    let away = stolen_samples(4_999.0) as u64;
    let range = samples(least).saturating_sub(away)..=samples(most) + 1;
    assert!(*range.start() > 50, "{range:?}");
    assert_within("samples", found, range, &report);
}
