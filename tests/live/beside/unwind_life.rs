//! Stacks stay complete through what happens to processes: fork, exec, deleted files, namespaces, late starts.
//!
//! The programs have no frame pointers, and their hot function keeps garbage in that register. Each computes for 100 ms of
//! CPU time in `early`, waits for the word, which it gets when the tool has looked at all that happened, and computes in `late`,
//! in which every stack has to be whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use host::clock::monotonic_ns;

use crate::beside::containers::enter;
use crate::beside::symbols::{HERTZ, all, assert_most, names, profile, stacks};
use crate::elf_entry::Elves;
use crate::prelude::*;
use crate::ticks::{Moment, all_moments, moments};
use crate::word::Word;

const PHASES: &str = include_str!("../../workloads/unwind/phases.c");

/// Both phases, of which the first argument has the milliseconds of `late`. The word comes by stdin, if there are no more arguments,
/// or by a FIFO.
pub(crate) const MAIN: &str = r#"
int main(int argc, char **argv)
{
	char byte;

	if (argc == 2)
		ready();
	early(100);
	if (argc == 2)
		say("done\n"), await_go();
	else if (read(open(argv[2], O_RDONLY), &byte, 1) != 1)
		return 1;
	late(atoll(argv[1]));
	say("done\n");
	if (argc == 2)
		await_go();
	return 0;
}
"#;

pub(crate) const NO_POINTERS: &str = "-fomit-frame-pointer -fasynchronous-unwind-tables";

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
pub(crate) fn assert_whole(whole: u64, all: u64, percent: u64) {
    let context = format!("% of {all}");
    assert_within("whole", whole * 100, all * percent.., context);
}

/// The program `comm` is seen in its phases, and 99 % of the later one is whole.
pub(crate) fn assert_samples(report: &Value, comm: &str, program: &Path) {
    let early = in_function(report, "early").map(weight).sum();
    assert_phases(report, comm, program, early);
}

fn assert_phases(report: &Value, comm: &str, program: &Path, early: u64) {
    let (late, whole) = whole(report, "late", program);
    assert_most(early + late, all(report, comm), report);
    assert!(late > 0, "none of the later phase: {report}");
    assert_whole(whole, late, 99);
}

/// The same of code that is mapped while the tool runs, which knows its callers from a moment on: of those of `early` there may be
/// the leaf alone. Samples from the word on, which came at `word_ns`, are the later phase's by themselves.
pub(crate) fn assert_samples_from(
    word_ns: u64,
    mut samples: Vec<Moment>,
    report: &Value,
    comm: &str,
    program: &Path,
) {
    let is_early = |stack: &&Value| {
        let has = |function: &str| stack["user"].is_array() && names(stack).contains(&function);
        !has("late") && (has("early") || has("burn"))
    };
    let early = stacks(report).iter().filter(is_early).map(weight).sum();
    assert_phases(report, comm, program, early);
    samples.retain(|one| one.ns >= word_ns);
    let late = samples.iter().filter(|one| one.is_in("late")).count();
    assert_most(late as u64, samples.len() as u64, report);
}

/// Traces both phases of what waits for the word.
pub(crate) fn both_phases(tool: &str, options: &str, workload: Workload) -> (Value, Vec<Value>) {
    both_phases_of(tool, options, workload, || ())
}

/// The same, with something to be done when the tool is attached.
pub(crate) fn both_phases_of(
    tool: &str,
    options: &str,
    mut workload: Workload,
    attached: impl FnOnce(),
) -> (Value, Vec<Value>) {
    let tool = Tool::attached(tool, format!("-j {options} -p {}", workload.pid()));
    attached();
    workload.work();
    tool.await_rest();
    let results = workload.work();
    let report = tool.report();
    workload.finish();
    (report, results)
}

/// Profiles it.
fn assert_profiled(workload: Workload, comm: &str, program: &Path) {
    let (report, _) = both_phases("profile", &format!("-F {HERTZ}"), workload);
    assert_samples(&report, comm, program);
}

#[test]
fn children_have_their_parents_tables_from_the_first_instruction_on() {
    let _machine = Machine::beside();
    let main = r#"
#include <sys/wait.h>
int main(void)
{
	ready();
	for (int i = 0; i < 7; i++) {
		if (fork() == 0) {
			late(50);
			_exit(0);
		}
		wait(NULL);
	}
	return finished();
}
"#;
    let program = phases("forking", main);
    let mut workload = program.start("");
    let tool = Tool::attached("profile", format!("-j -F {HERTZ} --comm forking"));
    // The parent's tables are made by then.
    tool.await_rest();
    workload.work();
    let report = tool.report();
    workload.finish();
    assert_samples(&report, "forking", program.path());
    let children = in_function(&report, "late").map(|stack| number(stack, "pid"));
    assert_eq!(children.collect::<BTreeSet<u64>>().len(), 7);
}

#[test]
fn exec_under_the_same_process_id() {
    let _machine = Machine::beside();
    let main = r#"
int main(int argc, char **argv)
{
	if (argc > 2) {
		early(100);
		say("done\n");
		await_go();
		late(300);
		return finished();
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
    let _machine = Machine::beside();
    let program = phases("phases", MAIN);
    let path = program.dir().join("samples.perf.txt");
    let options = format!("-o {}", path.display());
    let report = of_long_command(&program, &options, Word::give);
    assert_samples(&report, "phases", program.path());
    assert_whole_from_the_first_on(&path, "early", 80);

    let (all, good) = quick_commands();
    // The tables are made before the command begins.
    assert_whole(good, all, 95);
}

fn of_long_command(program: &Program, options: &str, give: fn(&Word, &Tool)) -> Value {
    let word = Word::of(program);
    let command = format!("{} 400 {}", program.text(), word.path().display());
    let options = format!("-j -F {HERTZ} {options}");
    let tool = Tool::start("profile", format!("{options} -- {command}"));
    give(&word, &tool);
    tool.finish().ok().last_report()
}

/// Samples of ten short ones, and how many are whole.
fn quick_commands() -> (u64, u64) {
    let main = "int main(void) { late(20); return 0; }\nvoid (*unused[])(void) = { ready };\n";
    let quick = phases("quick", main);
    let (mut all, mut good) = (0, 0);
    for _ in 0..10 {
        let report = profile(["--", quick.text()]);
        let (seen, complete) = whole(&report, "late", quick.path());
        assert!(seen > 0, "{report}");
        all += seen;
        good += complete;
    }
    (all, good)
}

/// A tool that has a CPU when it wants one is as fast as that.
#[test]
#[ignore = "statistical: make truth"]
fn what_happened_is_old_news_after_a_tenth_of_a_second() {
    let _machine = Machine::alone();
    let program = phases("phases", MAIN);
    let report = of_long_command(&program, "", |word, _| word.give_after(|| ()));
    assert_samples(&report, "phases", program.path());
    // Even of the first tenth the better part is whole.
    let (early, complete) = whole(&report, "early", program.path());
    assert_whole(complete, early, 80);
    let (all, _) = quick_commands();
    assert!(all >= 50, "{all}");
    let (program, _, report) = programs_of_a_millisecond_traced();
    let (all, complete) = whole(&report, "late", program.path());
    assert!(all >= 100, "{all}");
    assert_whole(complete, all, 95);
}

/// Samples that are enough for a share of them.
const ENOUGH: usize = 10;

/// The later part of samples in a function is whole: what comes after the first one that reaches the program's entry.
fn assert_whole_from_the_first_on(path: &Path, function: &str, percent: u64) {
    let moments = all_moments(path);
    let mut own: Vec<&Moment> = moments.iter().filter(|one| one.is_in(function)).collect();
    own.sort_by_key(|one| one.ns);
    let is_whole = |one: &&Moment| {
        one.is_in("main") && one.functions.last().is_some_and(|root| root == "_start")
    };
    let first = own.iter().position(is_whole);
    let later = &own[first.unwrap_or_else(|| panic!("none is whole: {own:?}"))..];
    assert_within("later samples", later.len(), ENOUGH.., own.len());
    let whole = later.iter().copied().filter(is_whole).count();
    assert_whole(whole as u64, later.len() as u64, percent);
}

/// Such a program is gone before user space has read what it maps: the kernel side finds its files' tables itself.
#[test]
fn programs_of_a_millisecond() {
    let _machine = Machine::beside();
    let (_program, samples, _) = programs_of_a_millisecond_traced();
    // All but what ran before the first one's table was made.
    assert_whole_from_the_first_on(&samples, "late", 95);
}

/// The program, and samples of 500 runs of it, with their times and in a report.
fn programs_of_a_millisecond_traced() -> (Program, PathBuf, Value) {
    let main = "int main(void) { late(1); return 0; }\nvoid (*unused[])(void) = { ready };\n";
    let program = phases("phases", main);
    let path = program.text();
    let samples = program.dir().join("samples.perf.txt");
    let script = format!("i=0; while [ $i -lt 500 ]; do {path}; i=$((i + 1)); done");
    let file = samples.to_str().expect("plain");
    let report = profile(["-o", file, "--", "sh", "-c", &script]);
    (program, samples, report)
}

#[test]
fn a_deleted_program() {
    let _machine = Machine::beside();
    let program = phases("phases", MAIN);
    let running = program.dir().join("running");
    copy_program(program.path(), &running);
    let mut command = Command::new(&running);
    command.arg("300");
    let workload = Workload::spawn("running", command);
    fs::remove_file(&running).expect("our own file");
    assert_profiled(workload, "running", program.path());
}

#[test]
fn a_program_in_a_mount_namespace() {
    let _machine = Machine::beside();
    let program = phases("phases", MAIN);
    let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/phases && exec /mnt/phases 300";
    let workload = enter(script, &program.command(""));
    assert_profiled(workload, "phases", program.path());
}

#[test]
fn a_program_that_starts_after_the_tool() {
    let _machine = Machine::beside();
    let program = phases("starting", MAIN);
    let word = Word::of(&program);
    let file = program.dir().join("samples.perf.txt");
    let tool = Tool::attached("profile", format!("-j -F {HERTZ} -o {}", file.display()));
    let arguments = format!("300 {}", word.path().display());
    let mut late = program.command(arguments);
    let mut late = late.stdout(Stdio::null()).spawn().expect("it runs");
    let mut word_ns = 0;
    word.give_after(|| {
        tool.await_rest();
        word_ns = monotonic_ns();
    });
    assert!(late.wait().expect("our child").success());
    // Others beside this test have functions of these names, too.
    let mut report = tool.report();
    let all = report["stacks"].as_array_mut().expect("stacks");
    all.retain(|stack| stack["comm"] == "starting");
    let samples = moments(&file, late.id());
    assert_samples_from(word_ns, samples, &report, "starting", program.path());
}
