//! Stacks stay complete through a library that is opened while the tool runs.

use oracle::{Below, Engine};

use crate::beside::symbols::{HERTZ, names};
use crate::beside::unwind_life::{
    NO_POINTERS, assert_samples, assert_samples_from, assert_whole, both_phases, both_phases_of,
    whole,
};
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::ticks::all_moments;

/// Both phases as a library. The helpers of every program are in it too, unused or not.
const LIBRARY: &str = concat!(
    include_str!("../../workloads/unwind/phases.c"),
    "\nvoid set_sleeps(void) { sleeps = 1; }\nvoid (*unused[])(void) = { ready };\n"
);

/// Opens it and comes to both; with a second argument it sleeps in them.
const OPENS: &str = r#"
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
	say("done\n");
	await_go();
	long long start = clock_ns(CLOCK_MONOTONIC);
	late(300);
	say("{\"start_ns\": %lld, \"end_ns\": %lld}\n", start, clock_ns(CLOCK_MONOTONIC));
	return finished();
}
"#;

#[test]
fn a_library_that_is_opened_during_the_run() {
    let _machine = Machine::beside();
    let library = Program::c("phases.so", LIBRARY, format!("-shared -fPIC {NO_POINTERS}"));
    let program = Program::c("opens", OPENS, NO_POINTERS);
    let file = program.dir().join("samples.perf.txt");
    let options = format!("-F {HERTZ} -o {}", file.display());
    let workload = program.start([library.text()]);
    let (report, results) = both_phases("profile", &options, workload);
    let (word_ns, samples) = (number(&results[0], "start_ns"), all_moments(&file));
    assert_samples_from(word_ns, samples, &report, "opens", program.path());

    let workload = program.start([library.text(), "sleeps"]);
    let tid = workload.pid();
    let below = Below::attach_to(&[Engine::Scheduler], tid).expect("the oracle");
    let mut around = None;
    let (report, results) = both_phases_of("offcputime", "-m 0", workload, || {
        around = Some(below.around().expect("the oracle"));
    });
    let logs = around.expect("it was traced").take().expect("whole logs");
    let times = Times::in_report(&report, &logs, tid.into(), sees_hidden());
    let worked = number(&results[0], "start_ns")..number(&results[0], "end_ns");
    let asleep = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&worked));
    let in_late = |stack: &Value| names(stack).contains(&"late");
    times.assert_inside(&asleep, |stack| {
        stack["reason"] == "sleep" && in_late(stack)
    });
    let (asleep_ns, whole_ns) = whole(&report, "late", program.path());
    assert_whole(whole_ns, asleep_ns, 99);
}

/// The tool sleeps from before a process maps the library until after it has called it: the kernel's side finds the table that
/// another process's use of the library has made.
#[test]
fn a_library_that_is_opened_while_the_tool_wants_a_cpu() {
    let _machine = Machine::beside();
    let library = Program::c("phases.so", LIBRARY, format!("-shared -fPIC {NO_POINTERS}"));
    let program = Program::c("opens", OPENS, NO_POINTERS);
    let tool = Tool::attached("profile", format!("-j -F {HERTZ} --comm opens"));
    let mut first = program.start([library.text()]);
    first.work();
    let mut second = program.start([library.text()]);
    tool.await_rest();
    tool.signal(libc::SIGSTOP);
    second.work();
    second.work();
    let pid = second.pid();
    tool.signal(libc::SIGCONT);
    let mut report = tool.report();
    first.work();
    first.finish();
    second.finish();
    let all = report["stacks"].as_array_mut().expect("stacks");
    all.retain(|stack| stack["pid"] == pid);
    assert_samples(&report, "opens", program.path());
}
