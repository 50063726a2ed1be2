//! syscount against a program that knows its calls, strace, and the log of the kernel's events.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::process::Command;

use oracle::{Engine, calls};

use crate::c_program::run;
use crate::kernel::skip;
use crate::prelude::*;
use crate::traced::{assert_no_gaps, logged};

/// Rows of a call; there are none of one that nobody made.
fn rows<'a>(report: &'a Value, call: &str) -> Vec<&'a Value> {
    let groups = list(report, "groups").iter();
    groups.filter(|group| group["call"] == call).collect()
}

/// The only row of a call.
fn row<'a>(report: &'a Value, call: &str) -> &'a Value {
    let rows = rows(report, call);
    assert_eq!(rows.len(), 1, "rows of {call}: {report:#}");
    rows[0]
}

fn caller() -> Workload {
    Workload::start(
        "caller",
        if cfg!(target_arch = "x86_64") {
            "--compat"
        } else {
            ""
        },
    )
}

fn assert_no_losses(report: &Value) {
    let losses = report["losses"].as_object().expect("losses");
    assert!(losses.values().all(|count| *count == 0), "{losses:?}");
}

/// The workload's account of one kind of calls.
fn assert_told(row: &Value, told: &Value) {
    let name = text(told, "call");
    let count = number(told, "calls");
    assert_eq!(number(row, "count"), count, "{name}: {row:#}");
    let is_error = told["error"].is_string();
    assert_eq!(
        number(row, "failed"),
        u64::from(is_error) * count,
        "{row:#}"
    );
    if is_error {
        let error = text(told, "error");
        assert_eq!(row["errors"], serde_json::json!({error: count}));
    }
    let bounds = number(told, "least_ns")..=number(told, "most_ns");
    assert_within(format!("{name}, ns"), number(row, "time_ns"), bounds, row);
    assert_eq!(row["time_ns"], row["sum_ns"], "nothing is cut: {row:#}");
}

#[test]
fn prime_numbers_of_calls_their_errors_and_times_are_those_that_the_program_knows() {
    let _machine = Machine::beside();
    let (report, results) = traced("syscount", "", caller());
    for told in results.iter().filter(|told| number(told, "calls") > 0) {
        assert_told(row(&report, text(told, "call")), told);
    }
    let suspended = row(&report, "rt_sigsuspend");
    assert_eq!(suspended["interrupted"], suspended["count"]);
    // The handler's return has the error of what it interrupted.
    let returns = row(&report, "rt_sigreturn");
    assert_eq!(returns["count"], suspended["count"]);
    assert_eq!(number(returns, "failed"), 0);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(row(&report, "getsid")["is_32_bit"], true);
        assert_eq!(number(row(&report, "getsid"), "number"), 147);
    }
    assert_no_losses(&report);
}

#[test]
fn calls_are_those_of_the_kernels_events() {
    let _machine = Machine::beside();
    let mut workload = caller();
    let args = format!("-j -L -p {}", workload.pid());
    let start = || Tool::start("syscount", args);
    let (output, results, logs) = logged(&[Engine::Calls], start, &mut workload);
    workload.finish();
    let report = output.report();
    let tid = id(&results[0], "tid");
    let truth = calls::calls(&logs, tid).expect("logs that agree");
    assert!(truth.len() > 8, "{truth:?}");
    for (call, truth) in truth {
        let is_its = |row: &&Value| {
            number(row, "tid") == u64::from(tid)
                && number(row, "number") == u64::from(call)
                && row["is_32_bit"] == false
        };
        // It may have slept in some.
        let rows: Vec<&Value> = list(&report, "groups").iter().filter(is_its).collect();
        assert!(!rows.is_empty(), "no {call} of {tid}: {report:#}");
        let name = text(rows[0], "call");
        // It begins to read its input before the logs, and does so once more after them.
        if name == "read" {
            continue;
        }
        let all = |field| sum(rows.iter().copied(), field);
        let found = (all("count"), all("sum_ns"));
        assert_bracketed(name, found, &truth.bracket, &report);
        let own = truth.errors.iter();
        let own = own.filter(|(error, _)| name != "rt_sigreturn" && **error < 512);
        let errors: u64 = own.map(|(_, count)| count).sum();
        assert_eq!(all("failed"), errors, "{name}: {report:#}");
    }
}

/// Calls and errors by name.
type Counts = BTreeMap<String, (u64, u64)>;

fn strace(command: &[&str]) -> Option<Counts> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "calls,errors,name", "-o"]);
    strace.arg(file.path()).arg("--").args(command);
    strace.output().ok()?;
    let text = fs::read_to_string(file.path()).expect("strace's table");
    let cells = text.lines().map(|line| line.split_whitespace().collect());
    let rows = cells.filter_map(|cells: Vec<&str>| match cells[..] {
        [calls, name] => Some((name.to_owned(), (calls.parse().ok()?, 0))),
        [calls, errors, name] => {
            let counts = (calls.parse().ok()?, errors.parse().ok()?);
            Some((name.to_owned(), counts))
        }
        _ => None,
    });
    Some(rows.filter(|(name, _)| name != "total").collect())
}

#[test]
fn calls_and_errors_are_straces() {
    let _machine = Machine::beside();
    let command = [
        "/bin/dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "count=4999",
    ];
    let Some(expected) = strace(&command) else {
        return skip("no strace");
    };
    let words = [&["--by-call", "-j", "--"][..], &command].concat();
    let report = Tool::run("syscount", words).ok().last_report();
    let mut found = Counts::new();
    // The last one does not return, and is there only if it is open at the end.
    let returned = |row: &&Value| number(row, "count") > 0;
    for row in list(&report, "groups").iter().filter(returned) {
        let counts = found.entry(text(row, "call").to_owned()).or_default();
        counts.0 += number(row, "count");
        counts.1 += number(row, "failed");
    }
    assert_eq!(found, expected);
    // Nobody has to do anything for /dev/zero.
    assert_eq!(row(&report, "read")["is_wait"], false);
    assert!(found["write"].0 >= 4_999 && found["openat"].1 + found["access"].1 > 0);
}

fn window(report: &Value) -> Range<u64> {
    number(report, "start_ns")..number(report, "end_ns")
}

#[test]
fn a_call_that_does_not_return_has_all_of_each_interval() {
    let _machine = Machine::beside();
    let workload = Workload::start("asleep", "");
    let args = format!("-j -L -p {} 150ms 3", workload.pid());
    let output = Tool::run("syscount", args).ok();
    let reports = output.reports();
    assert_eq!(reports.len(), 3);
    assert_no_gaps(&reports);
    for report in &reports {
        let length = window(report).end - window(report).start;
        for call in ["futex", "rt_sigsuspend", "read"] {
            let rows = rows(report, call);
            assert!(!rows.is_empty(), "no {call}: {report:#}");
            for row in rows {
                let found = (
                    number(row, "time_ns"),
                    number(row, "open"),
                    number(row, "count"),
                );
                assert_eq!(found, (length, 1, 0), "{row:#}");
                assert_eq!(row["is_wait"], true, "{row:#}");
            }
        }
    }
}

#[test]
fn intervals_add_up_and_calls_across_their_edges_are_cut_there() {
    let _machine = Machine::beside();
    let mut workload = caller();
    let args = format!("17ms -j -p {}", workload.pid());
    let (output, results) = {
        let tool = Tool::attached("syscount", args);
        let results = workload.work();
        tool.wait_reports(4);
        (tool.end(), results)
    };
    workload.finish();
    let reports = output.reports();
    assert_no_gaps(&reports);
    for told in &results {
        let rows: Vec<&Value> = reports
            .iter()
            .flat_map(|report| rows(report, text(told, "call")))
            .collect();
        assert_eq!(
            sum(rows.iter().copied(), "count"),
            number(told, "calls"),
            "{told}"
        );
        let bounds = number(told, "least_ns")..=number(told, "most_ns");
        let time_ns = sum(rows.iter().copied(), "time_ns");
        assert_within(text(told, "call"), time_ns, bounds, told);
        // Parts and wholes are of the same calls.
        assert_eq!(time_ns, sum(rows, "sum_ns"));
    }
    // A single thread is in one call at a time, and two threads wait for each other.
    for report in &reports {
        let length = window(report).end - window(report).start;
        let sleeps = rows(report, "clock_nanosleep");
        assert!(sum(sleeps, "time_ns") <= length, "{report:#}");
    }
}

#[test]
fn failures_alone_and_one_error_alone() {
    let _machine = Machine::beside();
    let (report, _) = traced("syscount", "-x", caller());
    assert!(rows(&report, "getppid").is_empty() && rows(&report, "rt_sigsuspend").is_empty());
    assert_eq!(number(row(&report, "openat"), "count"), 97);
    for group in list(&report, "groups") {
        assert_eq!(group["count"], group["failed"], "{group:#}");
    }
    let (report, _) = traced("syscount", "-e EBADF", caller());
    assert_eq!(list(&report, "groups").len(), 1, "{report:#}");
    assert_eq!(number(row(&report, "fsync"), "count"), 53);
}

#[test]
fn rows_for_which_the_kernel_side_has_no_room_at_once_are_all_there() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("word");
    run(Command::new("mkfifo").arg(&path));
    // It keeps a word until somebody reads it, for it is open at both ends.
    let word = File::options().read(true).write(true).open(&path);
    let mut word = word.expect("a FIFO");
    // The script says when fifty more are over, and waits until the tool has taken their rows out.
    let script = "exec 3< \"$0\"; i=0; while [ $i -lt 797 ]; do /bin/true; i=$((i+1)); \
                  [ $((i % 50)) -ne 0 ] || { echo '{}'; read -r word <&3 || exit; }; done";
    let path = path.to_str().expect("plain");
    let command = ["-j", "--", "/bin/sh", "-c", script, path];
    let tool = Tool::start("syscount", command);
    for batch in 1..=797 / 50 {
        tool.wait_reports(batch);
        tool.await_rest();
        word.write_all(b"x\n").expect("a FIFO");
    }
    let report = tool.finish().ok().last_report();
    assert!(list(&report, "groups").len() > 10_240, "too few to tell");
    assert_no_losses(&report);
    let mut executed = rows(&report, "execve");
    executed.retain(|row| row["comm"] == "true");
    assert_eq!(sum(executed, "count"), 797);
    // A child's return from the call that made it is none of its own.
    let forks = ["clone", "clone3", "fork", "vfork"].map(|call| rows(&report, call));
    assert_eq!(sum(forks.into_iter().flatten(), "count"), 797);
}

#[test]
fn the_dead_are_in_no_call() {
    let _machine = Machine::beside();
    // Dead and not reaped before the program ends.
    let program = "import os; pid = os.posix_spawn('/bin/true', ['true'], {}); \
                   os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)";
    let report = Tool::run("syscount", ["-j", "--", "/usr/bin/python3", "-c", program]).ok();
    let report = report.last_report();
    let of_true = |row: &&Value| row["comm"] == "true";
    let mut rows = list(&report, "groups").iter().filter(of_true);
    assert!(rows.clone().count() > 5, "{report:#}");
    assert!(rows.all(|row| row["open"] == 0), "{report:#}");
}
