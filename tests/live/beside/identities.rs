//! Who is who, and when: numbers that others come to have, children that a tool inherits, a namespace's clock, a command's end.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::beside::symbols::stacks;
use crate::c_program::run;
use crate::kernel::until;
use crate::prelude::*;
use crate::targets::{Tools, groups};
use crate::ticks::{Moment, assert_ticks, clock, moments};
use crate::word::Word;

/// Takes the number in its first argument, with luck that is none (clone3), and is busy under it.
const REUSE: &str = r#"
#include <errno.h>
#include <linux/sched.h>
#include <sys/wait.h>
int main(int argc, char **argv)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	pid_t wanted = atoi(argv[1]);
	struct clone_args how = {
		.exit_signal = 17, .set_tid = (unsigned long)&wanted, .set_tid_size = 1
	};
	long child;

	ready();
	/* Another that is born meanwhile may have the number for a while. */
	while ((child = syscall(SYS_clone3, &how, sizeof(how))) < 0 && errno == EEXIST)
		usleep(1000);
	if (child < 0)
		return 1;
	if (!child) {
		for (int i = 0; i < 100; i++) {
			nanosleep(&moment, NULL);
			busy_ns(CLOCK_MONOTONIC, 1000000);
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
    let _machine = Machine::beside();
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

/// Three threads that sleep again and again, for a while: at once, or when a line comes from the file that is named.
const CROWD: &str = r#"
#include <pthread.h>
static void *nap(void *argument)
{
	struct timespec moment = { .tv_nsec = 5000000 };

	for (int i = 0; i < 500; i++) {
		long before = sleeps_so_far();

		/* A thread that is late finds its time over, and has not slept. */
		do
			nanosleep(&moment, NULL);
		while (sleeps_so_far() == before);
	}
	return argument;
}
int main(int argc, char **argv)
{
	pthread_t threads[3];

	if (argc > 1 && (dup2(open(argv[1], O_RDONLY), 0) || !await_go()))
		return 1;
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
    let _machine = Machine::beside();
    let program = Program::c("crowd", CROWD, "-pthread");
    let word = Word::of(&program);
    // The word comes when the tool is attached.
    let script = "\"$0\" \"$2\" > /dev/null & exec \"$1\" -j -p $!";
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command.args([program.path(), &crate::built("offcputime"), word.path()]);
    let tool = Tool::spawn("offcputime", command);
    tool.wait_attached();
    word.give_after(|| ());
    let children = format!("/proc/{0}/task/{0}/children", tool.pid());
    let children = fs::read_to_string(children).expect("it lives");
    let crowd = children.split_whitespace().next().expect("the crowd");
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{crowd}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    until("the crowd is over", is_over);
    let output = tool.end().stdout;
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
    let _machine = Machine::beside();
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
	say("{\"tid\": %d, \"ended_ns\": %lld}\n", getpid(), clock_ns(CLOCK_MONOTONIC));
	return 0;
}
"#;

#[test]
fn a_commands_end_is_its_work_too() {
    let _machine = Machine::beside();
    let program = Program::c("rich", RICH, "");
    let path = program.dir().join("rich.perf.txt");
    let clock = clock(997);
    let args = format!("-q -j -F 997 -o {} -- {}", path.display(), program.text());
    let output = Tool::run("profile", args).ok();
    let ticks = clock.take().expect("a whole log");
    let rich = json(output.stdout.lines().next().expect("its word"));
    let (tid, ended) = (id(&rich, "tid"), number(&rich, "ended_ns")..u64::MAX);
    // By then it does nothing else.
    let of_end = moments(&path, tid).into_iter();
    let of_end: Vec<Moment> = of_end.filter(|one| ended.contains(&one.ns)).collect();
    assert_ticks(of_end.len() as u64, &ticks, tid, &ended);
    let exits = of_end.iter().filter(|one| one.is_in("do_exit")).count();
    assert!(
        exits > 0 && exits + 2 >= of_end.len(),
        "{exits}: {of_end:?}"
    );
}
