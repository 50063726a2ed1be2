//! Stacks stay complete through what happens to processes: dlopen, fork, exec, deleted files, namespaces, late starts.
//!
//! The programs have no frame pointers, and their hot function keeps garbage in that register. Each computes for 100 ms of
//! CPU time in `early` and then in `late`: what happened is old news by then, and every stack in `late` has to be whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::c_program::{compile, run};
use crate::containers::enter;
use crate::cpu_times::{stolen_samples, untaken_samples};
use crate::elf_entry::Elves;
use crate::kernel::alone;
use crate::symbols::{HERTZ, frames, name, profile, stacks, start};
use crate::tool::Tool;
use crate::traced::reported;
use crate::workload::{Workload, number};

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

const NO_POINTERS: [&str; 2] = ["-fomit-frame-pointer", "-fasynchronous-unwind-tables"];

pub(crate) fn compile_phases(dir: &Path, main: &str) -> PathBuf {
    compile(dir, "phases", &format!("{PHASES}{main}"), &NO_POINTERS)
}

pub(crate) fn weight(stack: &Value) -> u64 {
    let values = stack["values"].as_array().expect("values").iter();
    values.filter_map(Value::as_u64).sum()
}

fn names(stack: &Value) -> Vec<&str> {
    frames(stack, "user").iter().map(name).collect()
}

fn address(frame: &Value) -> u64 {
    let address = frame["address"]
        .as_str()
        .and_then(|text| text.strip_prefix("0x"));
    u64::from_str_radix(address.expect("an address"), 16).expect("hexadecimal")
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
        let rooted = elves.is_entry(program, address(&frames(stack, "user")[0]));
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

/// Whether so many samples, or sleeps, were expected in a report.
fn is_about(report: &Value, found: u64, expected: f64, error: f64) -> bool {
    let of_clock = report["event"] == "cpu-clock";
    let untaken = if of_clock {
        untaken_samples(report)
    } else {
        0.0
    };
    let hertz = HERTZ.parse().expect("a number");
    let least = (1.0 - error) * expected - untaken;
    let most = (1.0 + error) * expected + stolen_samples(hertz);
    (least..=most).contains(&(found as f64))
}

/// All of `late` was seen, and 99 % of it whole.
fn assert_late(report: &Value, late_ns: u64, expected: f64, program: &Path) {
    let (all, whole) = whole(report, "late", program);
    assert!(
        is_about(report, all, expected, 0.1),
        "{all}, {expected} expected of {late_ns} ns: {report:#}"
    );
    assert!(
        whole * 100 >= all * 99,
        "{whole} of {all}: {:#}",
        report["comments"]
    );
}

pub(crate) fn assert_samples(report: &Value, late_ns: u64, program: &Path) {
    let expected = HERTZ.parse::<f64>().expect("a number") * late_ns as f64 / 1e9;
    assert_late(report, late_ns, expected, program);
}

/// Runs a waiting program under a tool.
pub(crate) fn trace(tool: &str, args: &[&str], mut workload: Workload) -> (Value, Vec<Value>) {
    let found = reported(tool, args, &mut workload);
    workload.finish();
    found
}

#[test]
fn a_library_that_is_opened_during_the_run() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let library = dir.path().join("phases.so");
    // The helpers of every program are in it too, unused or not.
    let as_library = format!(
        "{PHASES}\nvoid set_sleeps(void) {{ sleeps = 1; }}\nvoid (*unused[])(void) = {{ ready }};\n"
    );
    let built = compile(
        dir.path(),
        "library",
        &as_library,
        &[&["-shared", "-fPIC"], &NO_POINTERS[..]].concat(),
    );
    fs::rename(built, &library).expect("our own file");
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
	say("{\"late_ns\": %lld}\ndone\n", late(300));
	await_go();
	return 0;
}
"#;
    let program = compile(dir.path(), "opens", main, &NO_POINTERS);
    let library = library.to_str().expect("plain");
    let (workload, tgid) = start(&program, &[library]);
    let (report, results) = trace("profile", &["-F", HERTZ, "-p", &tgid.to_string()], workload);
    assert_samples(&report, number(&results[0], "late_ns"), &program);

    let (workload, tgid) = start(&program, &[library, "sleeps"]);
    let (report, results) = trace("offcputime", &["-p", &tgid.to_string()], workload);
    let late_ns = number(&results[0], "late_ns");
    assert_late(&report, late_ns, late_ns as f64, &program);
}

#[test]
fn children_have_their_parents_tables_from_the_first_instruction_on() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
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
	say("{\"late_ns\": %lld}\ndone\n", *late_ns);
	await_go();
	return 0;
}
"#;
    let program = compile_phases(dir.path(), main);
    let (workload, _) = start(&program, &[]);
    let (report, results) = trace("profile", &["-F", HERTZ, "--comm", "phases"], workload);
    assert_samples(&report, number(&results[0], "late_ns"), &program);
    let mut children: Vec<u64> = in_function(&report, "late")
        .map(|stack| number(stack, "pid"))
        .collect();
    children.sort_unstable();
    children.dedup();
    assert_eq!(children.len(), 7);
}

#[test]
fn exec_under_the_same_process_id() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
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
    let program = compile_phases(dir.path(), main);
    let (workload, tgid) = start(&program, &["1"]);
    let (report, results) = trace("profile", &["-F", HERTZ, "-p", &tgid.to_string()], workload);
    let late_ns = 100_000_000 + number(&results[0], "late_ns");
    assert_samples(&report, late_ns, &program);
}

#[test]
fn commands_short_and_long() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile_phases(dir.path(), MAIN);
    let command = program.to_str().expect("plain");
    let report = profile(&["--", command, "400", "now"]);
    assert_samples(&report, 400_000_000, &program);
    // A tenth of a second after its start: even of that the better part is whole.
    let (all, early) = whole(&report, "early", &program);
    assert!(is_about(&report, all, 99.7, 0.1), "{all}");
    assert!(early * 10 >= all * 8, "{early} of {all}");

    let quick = compile(
        dir.path(),
        "quick",
        &format!(
            "{PHASES}int main(void) {{ late(20); return 0; }}\nvoid (*unused[])(void) = {{ ready }};\n"
        ),
        &NO_POINTERS,
    );
    let (mut all, mut good) = (0, 0);
    for _ in 0..10 {
        let report = profile(&["--", quick.to_str().expect("plain")]);
        let (seen, complete) = whole(&report, "late", &quick);
        all += seen;
        good += complete;
    }
    eprintln!("{good} of {all} samples of short commands whole");
    // The tables are made before the command begins.
    assert!(all >= 150 && good * 100 >= all * 95, "{good} of {all}");
}

/// Such a program is gone before user space has read what it maps: the kernel side finds its files' tables itself.
#[test]
fn programs_of_a_millisecond() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let main = "int main(void) { late(1); return 0; }\nvoid (*unused[])(void) = { ready };\n";
    let program = compile_phases(dir.path(), main);
    let path = program.to_str().expect("plain");
    let script = format!("i=0; while [ $i -lt 500 ]; do {path}; i=$((i + 1)); done");
    let report = profile(&["--", "sh", "-c", &script]);
    // All but what ran before the first one's table was made.
    let (all, whole) = whole(&report, "late", &program);
    eprintln!("{whole} of {all} samples whole");
    let expected = HERTZ.parse::<f64>().expect("a number") * 0.5;
    assert!(
        is_about(&report, all, expected, 0.15),
        "{all}, {expected} expected"
    );
    assert!(whole * 100 >= all * 95, "{whole} of {all}");
}

#[test]
fn a_deleted_program() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile_phases(dir.path(), MAIN);
    let running = dir.path().join("running");
    fs::copy(&program, &running).expect("a copy");
    let (workload, tgid) = start(&running, &["300"]);
    fs::remove_file(&running).expect("our own file");
    let (report, results) = trace("profile", &["-F", HERTZ, "-p", &tgid.to_string()], workload);
    assert_samples(&report, number(&results[0], "late_ns"), &program);
}

#[test]
fn a_program_in_a_mount_namespace() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile_phases(dir.path(), MAIN);
    let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/phases && exec /mnt/phases 300";
    let (workload, tgid) = enter(script, &Command::new(&program));
    let (report, results) = trace("profile", &["-F", HERTZ, "-p", &tgid.to_string()], workload);
    assert_samples(&report, number(&results[0], "late_ns"), &program);
}

#[test]
fn a_program_that_starts_after_the_tool() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile_phases(dir.path(), MAIN);
    let tool = Tool::start("profile", &["-j", "-F", HERTZ]);
    tool.wait_attached();
    let output = run(Command::new(&program).args(["300", "now"]));
    tool.interrupt();
    let report = serde_json::from_str(&tool.finish().stdout).expect("JSON");
    let result: Value = serde_json::from_str(output.lines().next().expect("a line")).expect("JSON");
    assert_samples(&report, number(&result, "late_ns"), &program);
}
