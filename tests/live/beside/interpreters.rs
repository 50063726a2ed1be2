//! Interpreters and JIT compilers: functions of JavaScript, Java and Python, all of them and in order, up to the thread's root.
//!
//! The programs are compiled when they say "ready", as far as they will be; all stacks from then on count, whoever's thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oracle::ticks::Ticks;
use oracle::{Below, Engine, Logs};
use tempfile::TempDir;

use crate::beside::containers::enter;
use crate::beside::symbols::{name, names, stacks};
use crate::c_program::run;
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::targets::ended;
use crate::ticks::{assert_ticks, clock, moments};

/// Called from first to last; the last one computes.
const HOT: [&str; 3] = ["a", "b", "hot"];
/// The last one is so small that much of its time goes into making and leaving its frame.
const SMALL: [&str; 3] = ["loop", "mid", "leaf"];

/// How a runtime's perf map writes a function's name.
type IsFunction = fn(frame: &str, function: &str) -> bool;

/// `JS:*hot /dir/calls.js:7:13`; the mark is the compiler's, none for the interpreter.
fn is_javascript(frame: &str, function: &str) -> bool {
    let word = frame.split(' ').next().unwrap_or_default();
    let last = word.rsplit(':').next().unwrap_or_default();
    last.trim_start_matches(['*', '^', '+', '~']) == function
}

/// `long Calls.hot(int)`
fn is_java(frame: &str, function: &str) -> bool {
    frame.contains(&format!("Calls.{function}("))
}

/// `py::hot:/dir/calls.py`
fn is_python(frame: &str, function: &str) -> bool {
    frame.starts_with(&format!("py::{function}:"))
}

pub(crate) fn source(file: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/live/interpreters");
    fs::canonicalize(dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The system's interpreter of Python, and those that `PYTHONS` names, between semicolons.
pub(crate) fn interpreters() -> Vec<String> {
    let named = std::env::var("PYTHONS").unwrap_or_default();
    let named = named.split(';').filter(|python| !python.is_empty());
    ["/usr/bin/python3"]
        .into_iter()
        .chain(named)
        .map(str::to_owned)
        .collect()
}

/// A program of [`source`] that speaks the workloads' protocol.
pub(crate) fn python_program(python: &str, file: &str) -> Workload {
    let mut command = Command::new(python);
    command.arg("-I").arg(source(file));
    Workload::spawn("python", command)
}

/// Place of the last such line of a program of [`source`].
pub(crate) fn place(file: &str, line: &str) -> String {
    let text = fs::read_to_string(source(file)).expect("the program");
    let is_it = |(_, found): &(i32, &str)| found.trim() == line;
    let found = (1..).zip(text.lines()).filter(is_it).last();
    format!("{file}:{}", found.expect("the line").0)
}

fn node() -> Command {
    let mut node = Command::new("node");
    // Inlined functions have no frames; these are for looking at, not for speed.
    node.args([
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        "--no-turbo-inlining",
    ]);
    node
}

fn python() -> Command {
    let mut python = newer_python();
    python.args(["-I", "-X", "perf"]);
    python
}

/// A Python that has the trampoline: setup/python finds or unpacks it.
pub(crate) fn newer_python() -> Command {
    let target = crate::built("python").with_file_name("../python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../setup/python");
    let command = run(Command::new(script).arg(target));
    let mut words = command.lines();
    let mut python = Command::new(words.next().expect("a command"));
    python.args(words);
    python
}

/// One run of a program by profile and offcputime, by its own account, and by the kernel's.
pub(crate) struct Traced {
    pub(crate) samples: Value,
    /// With their times.
    pub(crate) moments: PathBuf,
    pub(crate) waits: Value,
    pub(crate) said: Value,
    pub(crate) logs: Logs,
    pub(crate) ticks: Ticks,
    _dir: TempDir,
}

/// `before_the_end`: when the program is done, and still traced.
pub(crate) fn trace(mut workload: Workload, before_the_end: impl FnOnce()) -> Traced {
    const HERTZ: u64 = 499;
    let pid = workload.pid();
    let dir = tempfile::tempdir().expect("a directory");
    let moments = dir.path().join("samples.perf.txt");
    let below = Below::attach_to(&[Engine::Scheduler], pid).expect("the oracle");
    let samples = format!("-F {HERTZ} -o {}", moments.display());
    let tools = [("profile", samples.as_str()), ("offcputime", "-m 0")];
    let tools = tools.map(|(tool, own)| Tool::start(tool, format!("-j {own} -p {pid}")));
    tools.iter().for_each(Tool::wait_attached);
    let around = below.around().expect("the oracle");
    let clock = clock(HERTZ);
    let said = workload.work().remove(0);
    before_the_end();
    let ticks = clock.take().expect("a whole log");
    let [samples, waits] = ended(tools);
    let logs = around.take().expect("whole logs");
    workload.finish();
    Traced {
        samples,
        moments,
        waits,
        said,
        logs,
        ticks,
        _dir: dir,
    }
}

/// Which of these functions are in the stack, root first.
fn found<'a>(stack: &Value, chain: &[&'a str], is: IsFunction) -> Vec<&'a str> {
    let jit = list(stack, "user")
        .iter()
        .filter(|frame| frame["kind"] == "jit");
    let known = jit.filter_map(|frame| chain.iter().find(|function| is(name(frame), function)));
    known.copied().collect()
}

/// Weight of the stacks for which this holds.
fn weight_of(report: &Value, wanted: impl Fn(&Value) -> bool) -> u64 {
    let chosen = stacks(report).iter().filter(|stack| wanted(stack));
    chosen.map(weight).sum()
}

/// At least this share of the stacks of a kind are as they should be.
pub(crate) fn assert_share(
    report: &Value,
    what: &str,
    least: f64,
    kind: impl Fn(&Value) -> bool,
    right: impl Fn(&Value) -> bool,
) {
    let all = weight_of(report, &kind);
    let wrong = |stack: &Value| kind(stack) && !right(stack);
    let share = 1.0 - weight_of(report, wrong) as f64 / all as f64;
    let stack_text = |stack: &Value| {
        let names = names(stack).into_iter().rev().take(6);
        let names: Vec<String> = names.map(|name| name.chars().take(40).collect()).collect();
        format!(
            "{} {} {}\n",
            stack["count"],
            stack["user_end"],
            names.join(" < ")
        )
    };
    let wrong = stacks(report).iter().filter(|stack| wrong(stack));
    let wrong: String = wrong.map(stack_text).collect();
    assert_within(format!("{what}, share of {all}"), share, least.., wrong);
}

impl Traced {
    /// Samples are in `hot`, or in any of [`SMALL`] if the program has them; their callers are there, up to the root.
    fn assert_samples(&self, small: bool, is: IsFunction) {
        let report = &self.samples;
        let any = |_: &Value| true;
        let hot = |stack: &Value| found(stack, &HOT, is) == HOT;
        let any_small = |stack: &Value| !found(stack, &SMALL, is).is_empty();
        let whole_small = |stack: &Value| {
            let found = found(stack, &SMALL, is);
            !found.is_empty() && SMALL.starts_with(&found)
        };
        let right = |stack: &Value| hot(stack) || small && whole_small(stack);
        assert_share(report, "all functions", 0.95, any, right);
        if small {
            assert_share(report, "small functions", 0.99, any_small, whole_small);
        }
        let rooted = |stack: &Value| stack["user_end"] == "root";
        assert_share(report, "rooted", 0.99, any, rooted);
    }

    /// The thread that computed, and slept in these functions, has as many samples of its computing as there were ticks, and its
    /// sleeps are those of the log.
    fn assert_waits(&self, chain: [&str; 2], is: IsFunction) {
        let is_wait = |stack: &Value| {
            found(stack, &chain, is) == chain
                && stack["user_end"] == "root"
                && stack["reason"] != "preempted"
        };
        let own = stacks(&self.waits).iter().find(|stack| is_wait(stack));
        let tid = id(own.expect("a wait"), "tid");
        let [start, end, waited] =
            ["start_ns", "end_ns", "waited_ns"].map(|field| number(&self.said, field));
        let times = Times::in_report(&self.waits, &self.logs, tid.into(), sees_hidden());
        let asleep =
            times.bracket(|absence| !absence.was_runnable && absence.begins_in(&(end..waited)));
        assert!(asleep.count > 0, "{}", self.said);
        times.assert_inside(&asleep, is_wait);
        let moments = moments(&self.moments, tid);
        let computed = moments.iter().filter(|one| (start..=end).contains(&one.ns));
        assert_ticks(computed.count() as u64, &self.ticks, tid, &(start..end));
        if self.said["small_ns"].is_number() {
            self.assert_leaves(tid, is);
        }
    }

    /// A fifth of the samples that the clocks make certain of the small functions' time are in the last of them.
    fn assert_leaves(&self, tid: u32, is: IsFunction) {
        let small = number(&self.said, "small_ns")..number(&self.said, "end_ns");
        let ticks = *self.ticks.samples(tid, &small).start();
        let is_leaf = |stack: &Value| found(stack, &SMALL, is) == SMALL;
        let leaves = weight_of(&self.samples, is_leaf);
        assert_within("in the leaf", leaves, (ticks / 5).max(1).., ticks);
    }
}

#[test]
fn javascript_functions_are_all_there_in_order() {
    let _machine = Machine::beside();
    // It leaves a log in its directory.
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = node();
    command.arg(source("calls.js")).current_dir(dir.path());
    let traced = trace(Workload::spawn("node", command), || ());
    traced.assert_samples(true, is_javascript);
    traced.assert_waits(["waitOuter", "waitInner"], is_javascript);
}

/// The virtual machine's own threads take a share that grows where it waits for a CPU.
#[test]
fn java_functions_are_all_there_in_order() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let mut javac = Command::new("javac");
    run(javac.arg("-d").arg(dir.path()).arg(source("Calls.java")));
    let mut command = Command::new("java");
    // Compiled once, at the first call: what a better compiler replaces is not in the map that is written at the end, and how many
    // calls make a function worth compiling depends on how busy the compiler is.
    command.args("-XX:+PreserveFramePointer -Xcomp -XX:TieredStopAtLevel=1 -cp".split(' '));
    command.arg(dir.path());
    command.args(
        ["quiet", "compileonly,Calls::*", "dontinline,Calls::*"]
            .map(|what| format!("-XX:CompileCommand={what}")),
    );
    command.arg("Calls");
    let workload = Workload::spawn("java", command);
    let tgid = workload.pid().to_string();
    let traced = trace(workload, || {
        run(Command::new("jcmd").args([&tgid, "Compiler.perfmap"]));
    });
    traced.assert_samples(true, is_java);
    traced.assert_waits(["waitOuter", "waitInner"], is_java);
}

#[test]
fn python_functions_are_all_there_in_order() {
    let _machine = Machine::beside();
    let mut command = python();
    command.arg(source("calls.py"));
    let workload = Workload::spawn("python", command);
    // It never runs meanwhile: BPF does not see its stack, the tool walks it.
    let args = format!("-j -p {} 0.2", workload.pid());
    let asleep = Tool::run("offcputime", args).ok().report();
    let in_main = |stack: &Value| {
        found(stack, &["<module>", "main"], is_python).len() == 2 && stack["user_end"] == "root"
    };
    assert_share(&asleep, "asleep throughout", 1.0, |_| true, in_main);
    let traced = trace(workload, || ());
    traced.assert_samples(false, is_python);
    traced.assert_waits(["wait_outer", "wait_inner"], is_python);
}

/// The map is in the container's /tmp, under the ID that the process has there.
#[test]
fn javascript_in_a_container_has_a_perf_map_of_its_own() {
    let _machine = Machine::beside();
    // The checkout may be below the /tmp that is hidden.
    let script = format!(
        "exec 3<{}; mount -t proc none /proc && mount -t tmpfs none /tmp && cd /tmp && cat <&3 >calls.js && exec \"$@\" calls.js",
        source("calls.js").display()
    );
    let workload = enter(&script, &node());
    let outside = format!("/tmp/perf-{}.map", workload.pid());
    assert!(!Path::new(&outside).exists(), "{outside}");
    let traced = trace(workload, || ());
    traced.assert_samples(true, is_javascript);
    traced.assert_waits(["waitOuter", "waitInner"], is_javascript);
}
