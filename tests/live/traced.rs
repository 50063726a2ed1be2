//! A workload under a tool, from before its work to after it.

use std::path::PathBuf;
use std::process::Command;

use oracle::{Below, Engine, Logs};
use serde_json::Value;

use crate::args::Args;
use crate::kernel::{schedstat, tasks, until};
use crate::tool::{Output, Tool};
use crate::workload::Workload;

impl Workload {
    /// Threads that compute on CPU 0, where all but one always wait.
    pub(crate) fn spinners(threads: u32, seconds: u32) -> Self {
        Self::start(
            "spinner",
            format!("--threads {threads} --cpu 0 --seconds {seconds}"),
        )
    }

    /// The same, at work from now on until it is dropped: each thread has been on the CPU since the word.
    pub(crate) fn spinning(threads: u32) -> Self {
        let mut workload = Self::spinners(threads, 1_000_000);
        let tasks = tasks(workload.pid());
        let turns = |task: &PathBuf| schedstat(task)[2];
        let before: Vec<u64> = tasks.iter().map(turns).collect();
        workload.go();
        until("all spin", || {
            let mut began = tasks.iter().zip(&before);
            began.all(|(task, before)| turns(task) > *before)
        });
        workload
    }
}

/// Does something under a tool, from its attachment to Ctrl-C.
pub(crate) fn during<T>(tool: &str, args: impl Args, act: impl FnOnce() -> T) -> (Output, T) {
    let tool = Tool::attached(tool, args);
    let done = act();
    (tool.end(), done)
}

/// Runs `tool OPTIONS -p PID` over the work of a workload that is ready; gives what the tool wrote, and what the workload says of
/// itself. It is still there, all its threads asleep.
pub(crate) fn observed(tool: &str, options: &str, workload: &mut Workload) -> (Output, Vec<Value>) {
    let args = format!("{options} -p {}", workload.pid());
    during(tool, args, || {
        workload.go();
        workload.results()
    })
}

/// The same with `-j` for a tool that gives one report.
pub(crate) fn reported(tool: &str, options: &str, workload: &mut Workload) -> (Value, Vec<Value>) {
    let (output, results) = observed(tool, &format!("-j {options}"), workload);
    (output.report(), results)
}

/// The same of a workload that then ends.
pub(crate) fn traced(tool: &str, options: &str, mut workload: Workload) -> (Value, Vec<Value>) {
    let found = reported(tool, options, &mut workload);
    workload.finish();
    found
}

/// What a tool says of a workload, what that says of itself, and what the kernel did meanwhile.
pub(crate) struct Sandwich {
    pub(crate) report: Value,
    pub(crate) results: Vec<Value>,
    pub(crate) logs: Logs,
}

/// As [`traced`], between two logs.
pub(crate) fn sandwiched(tool: &str, options: &str, workload: Workload) -> Sandwich {
    sandwiched_as(tool, Tool::command(tool, options), workload)
}

/// The same with a tool that needs an environment of its own.
pub(crate) fn sandwiched_as(tool: &str, mut command: Command, mut workload: Workload) -> Sandwich {
    command.args(["-j", "-p", &workload.pid().to_string()]);
    let start = || Tool::spawn(tool, command);
    // Threads that ran while they waited are of interest, too.
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let (output, results, logs) = between(below, start, |_| workload.work());
    workload.finish();
    Sandwich {
        report: output.report(),
        results,
        logs,
    }
}

/// Runs a tool over the work of a workload that is ready, between two logs of it; gives what the tool wrote, what the workload
/// says of itself, and the logs. It is still there, all its threads asleep.
pub(crate) fn logged(
    engines: &'static [Engine],
    start: impl FnOnce() -> Tool,
    workload: &mut Workload,
) -> (Output, Vec<Value>, Logs) {
    logged_by(engines, start, workload, |_, workload| workload.work())
}

/// The same where the test leads the work step by step.
pub(crate) fn logged_by<T>(
    engines: &'static [Engine],
    start: impl FnOnce() -> Tool,
    workload: &mut Workload,
    act: impl FnOnce(&Tool, &mut Workload) -> T,
) -> (Output, T, Logs) {
    let below = Below::attach_to(engines, workload.pid()).expect("the oracle");
    between(below, start, |tool| act(tool, workload))
}

/// The same between logs of one's own choosing.
fn between<T>(
    below: Below,
    start: impl FnOnce() -> Tool,
    act: impl FnOnce(&Tool) -> T,
) -> (Output, T, Logs) {
    let tool = start();
    tool.wait_attached();
    let around = below.around().expect("the oracle");
    let results = act(&tool);
    let output = tool.end();
    let logs = around.take().expect("whole logs");
    (output, results, logs)
}

/// Each report begins when the one before ended.
pub(crate) fn assert_no_gaps(reports: &[Value]) {
    for pair in reports.windows(2) {
        assert_eq!(
            pair[0]["end_ns"], pair[1]["start_ns"],
            "no gap between reports"
        );
    }
}
