//! Stacks stay complete through what happens to processes: dlopen, fork, exec, deleted files, namespaces, late starts.
//!
//! The programs have no frame pointers, and their hot function keeps garbage in that register. Each computes for 100 ms of
//! CPU time in `early` and then in `late`: what happened is old news by then, and every stack in `late` has to be whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::c_program::run;
use crate::containers::enter;
use crate::elf_entry::Elves;
use crate::prelude::*;
use crate::symbols::{HERTZ, all, assert_most, names, profile, profile_workload, stacks};

const PHASES: &str = r#"
static int sleeps;
__attribute__((noinline)) unsigned long burn(unsigned long x)
{
	const struct timespec pause = { .tv_nsec = 5000000 };

	if (sleeps)
		return nanosleep(&pause, NULL);
	__asm__ volatile("mov %0, %%rbp" : : "r"(x * 8) : "rbp");
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("" : "+r"(x) : : "rbp");
	return x;
}
static long long clock_of_phase(void)
{
	return clock_ns(sleeps ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}
#define PHASE(name)                                                         \
	__attribute__((noinline)) long long name(long long ms)              \
	{                                                                   \
		long long start = clock_of_phase(), now = start;            \
                                                                            \
		for (; now < start + ms * 1000000; now = clock_of_phase())  \
			burn(now);                                          \
		return now - start;                                         \
	}
PHASE(early)
PHASE(late)
"#;

/// Both phases; one argument, the milliseconds of `late`, has it wait for the word.
pub(crate) const MAIN: &str = r#"
int main(int argc, char **argv)
{
	if (argc == 2)
		ready();
	early(100);
	say("{\"late_ns\": %lld}\ndone\n", late(atoll(argv[1])));
	if (argc == 2)
		await_go();
	return 0;
}
"#;

const NO_POINTERS: &str = "-fomit-frame-pointer -fasynchronous-unwind-tables";

/// A program whose `main` comes to both phases.
pub(crate) fn phases(name: &str, main: &str) -> Program {
    Program::c(name, &format!("{PHASES}{main}"), NO_POINTERS)
}

pub(crate) fn in_function<'a>(
    report: &'a Value,
    function: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let all = stacks(report).iter();
    all.filter(move |stack| stack["user"].is_array() && names(stack).contains(&function))
}

/// The value behind stacks in `function`; how much of it is whole: from `program`'s entry point through main, and said so.
pub(crate) fn whole(report: &Value, function: &str, program: &Path) -> (u64, u64) {
    let mut elves = Elves::default();
    let program = program.to_str().expect("plain");
    let (mut all, mut whole) = (0, 0);
    for stack in in_function(report, function) {
        all += weight(stack);
        let rooted = elves.is_entry(program, address(&list(stack, "user")[0]));
        let names = names(stack);
        let main = names.iter().position(|name| *name == "main");
        let called = main.is_some_and(|main| names[main + 1] == function);
        if rooted && called && stack["user_end"] == "root" {
            whole += weight(stack);
        } else {
            eprintln!("{} {names:?} {}", stack["user_end"], weight(stack));
        }
    }
    (all, whole)
}

/// At least that share is whole.
fn assert_whole(whole: u64, all: u64, percent: u64) {
    let context = format!("% of {all}");
    assert_within("whole", whole * 100, all * percent.., context);
}

/// The program `comm` is seen in its phases, and 99 % of the later one is whole.
pub(crate) fn assert_samples(report: &Value, comm: &str, program: &Path) {
    let (late, whole) = whole(report, "late", program);
    let early: u64 = in_function(report, "early").map(weight).sum();
    assert_most(early + late, all(report, comm), report);
    assert_whole(whole, late, 99);
}

/// Profiles what waits for the word.
fn assert_profiled(workload: Workload, comm: &str, program: &Path) {
    let (report, _) = profile_workload(workload);
    assert_samples(&report, comm, program);
}

#[test]
fn a_library_that_is_opened_during_the_run() {
    let _machine = Machine::alone();
    // The helpers of every program are in it too, unused or not.
    let source = format!(
        "{PHASES}\nvoid set_sleeps(void) {{ sleeps = 1; }}\nvoid (*unused[])(void) = {{ ready }};\n"
    );
    let library = Program::c("phases.so", &source, format!("-shared -fPIC {NO_POINTERS}"));
    let main = r#"
#include <dlfcn.h>
int main(int argc, char **argv)
{
	ready();
	void *library = dlopen(argv[1], RTLD_NOW);
	long long (*early)(long long) = dlsym(library, "early");
	long long (*late)(long long) = dlsym(library, "late");

	if (argc == 3)
		((void (*)(void))dlsym(library, "set_sleeps"))();
	early(100);
	say("{\"late_ns\": %lld}\n", late(300));
	return finished();
}
"#;
    let program = Program::c("opens", main, NO_POINTERS);
    assert_profiled(program.start([library.text()]), "opens", program.path());

    let workload = program.start([library.text(), "sleeps"]);
    let (report, results) = traced("offcputime", "", workload);
    let (asleep_ns, whole_ns) = whole(&report, "late", program.path());
    let late_ns = number(&results[0], "late_ns");
    assert_within("ns", asleep_ns, late_ns * 9 / 10..=late_ns, &report);
    assert_whole(whole_ns, asleep_ns, 99);
}

#[test]
fn children_have_their_parents_tables_from_the_first_instruction_on() {
    let _machine = Machine::alone();
    let main = r#"
#include <sys/wait.h>
int main(void)
{
	long long *late_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ready();
	for (int i = 0; i < 7; i++) {
		if (fork() == 0) {
			*late_ns += late(50);
			_exit(0);
		}
		wait(NULL);
	}
	say("{\"late_ns\": %lld}\n", *late_ns);
	return finished();
}
"#;
    let program = phases("phases", main);
    let mut workload = program.start("");
    let options = format!("-j -F {HERTZ} --comm phases");
    let (output, _) = during("profile", options, || workload.work());
    workload.finish();
    let report = output.report();
    assert_samples(&report, "phases", program.path());
    let children = in_function(&report, "late").map(|stack| number(stack, "pid"));
    assert_eq!(children.collect::<BTreeSet<u64>>().len(), 7);
}

#[test]
fn exec_under_the_same_process_id() {
    let _machine = Machine::alone();
    let main = r#"
int main(int argc, char **argv)
{
	if (argc > 2) {
		early(100);
		say("{\"late_ns\": %lld}\ndone\n", late(300));
		await_go();
		return 0;
	}
	ready();
	late(100);
	/* The same program at other addresses. */
	execl(argv[0], argv[0], argv[1], "again", NULL);
	return 1;
}
"#;
    let program = phases("phases", main);
    assert_profiled(program.start("1"), "phases", program.path());
}

#[test]
fn commands_short_and_long() {
    let _machine = Machine::alone();
    let program = phases("phases", MAIN);
    let report = profile(["--", program.text(), "400", "now"]);
    assert_samples(&report, "phases", program.path());
    // A tenth of a second after its start: even of that the better part is whole.
    let (early, complete) = whole(&report, "early", program.path());
    assert_whole(complete, early, 80);

    let main = "int main(void) { late(20); return 0; }\nvoid (*unused[])(void) = { ready };\n";
    let quick = phases("quick", main);
    let (mut all, mut good) = (0, 0);
    for _ in 0..10 {
        let report = profile(["--", quick.text()]);
        let (seen, complete) = whole(&report, "late", quick.path());
        all += seen;
        good += complete;
    }
    // The tables are made before the command begins.
    assert!(all >= 50, "{all}");
    assert_whole(good, all, 95);
}

/// Such a program is gone before user space has read what it maps: the kernel side finds its files' tables itself.
#[test]
fn programs_of_a_millisecond() {
    let _machine = Machine::alone();
    let main = "int main(void) { late(1); return 0; }\nvoid (*unused[])(void) = { ready };\n";
    let program = phases("phases", main);
    let path = program.text();
    let script = format!("i=0; while [ $i -lt 500 ]; do {path}; i=$((i + 1)); done");
    let report = profile(["--", "sh", "-c", &script]);
    // All but what ran before the first one's table was made.
    let (all, whole) = whole(&report, "late", program.path());
    assert!(all >= 100, "{all}");
    assert_whole(whole, all, 95);
}

#[test]
fn a_deleted_program() {
    let _machine = Machine::alone();
    let program = phases("phases", MAIN);
    let running = program.dir().join("running");
    fs::copy(program.path(), &running).expect("a copy");
    let mut command = Command::new(&running);
    command.arg("300");
    let workload = Workload::spawn("running", command);
    fs::remove_file(&running).expect("our own file");
    assert_profiled(workload, "running", program.path());
}

#[test]
fn a_program_in_a_mount_namespace() {
    let _machine = Machine::alone();
    let program = phases("phases", MAIN);
    let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/phases && exec /mnt/phases 300";
    let workload = enter(script, &program.command(""));
    assert_profiled(workload, "phases", program.path());
}

#[test]
fn a_program_that_starts_after_the_tool() {
    let _machine = Machine::alone();
    let program = phases("phases", MAIN);
    let (output, _) = during("profile", format!("-j -F {HERTZ}"), || {
        run(&mut program.command("300 now"))
    });
    assert_samples(&output.report(), "phases", program.path());
}
