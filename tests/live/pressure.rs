//! pressure against PSI's totals, schedstat and programs that time themselves.

use std::process::Command;

use oracle::{Below, Engine};

use crate::c_program::BURN;
use crate::cgroup::Cgroup;
use crate::kernel::{schedstat, until};
use crate::prelude::*;
use crate::psi::{assert_waits, bracketed, threads};
use crate::shortages::{DISK, WORKING_SET, program};
use crate::traced::assert_no_gaps;

/// Error allowed against the kernel's Δtotal, and against what programs know.
const TOLERANCE: f64 = 0.05;

/// Runs a prepared workload under `pressure -j` from "go" to its end.
fn trace(workload: &mut Workload) -> (Value, Vec<Value>) {
    let (output, results) = during("pressure", "-j", || workload.work());
    let report = output.report();
    for (loss, count) in report["losses"].as_object().expect("losses") {
        let is_allowed = match loss.as_str() {
            // Linux 5.10: a hypervisor may stop a CPU that holds the lock of another's counters; who waits for that goes ahead.
            "unlocked" => count.as_u64() <= Some(10),
            "unseen" | "unseen_ns" => true,
            _ => *count == 0,
        };
        assert!(is_allowed, "{loss}: {count}");
    }
    (report, results)
}

/// The entry of a process in `victims` or `culprits`.
pub(crate) fn party<'a>(report: &'a Value, resource: &str, list_of: &str, pid: u32) -> &'a Value {
    let parties = list(&report["resources"][resource], list_of);
    let own = parties.iter().find(|party| party["pid"] == pid);
    own.unwrap_or_else(|| panic!("{pid} is not among the {list_of} of {resource}"))
}

/// Stops a program, and returns when it has left its CPU.
fn stop(load: &Workload) {
    let pid = i32::try_from(load.pid()).expect("a PID");
    // SAFETY: sends a signal to a child that nobody has waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let call = format!("/proc/{pid}/syscall");
    until("it stops", || {
        let call = std::fs::read_to_string(&call).expect("its state");
        !call.starts_with("running")
    });
}

fn assert_close(what: &str, found: u64, truth: u64) {
    let off = (TOLERANCE * truth as f64) as u64;
    assert_within(what, found, truth - off..=truth + off, "ns");
}

#[test]
fn spinners_lose_what_the_kernel_says() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 3);
    let pid = workload.pid();
    let found = bracketed(&mut workload, "", "/proc/pressure/cpu");
    workload.finish();
    found.assert_some("cpu");
    let victim = party(&found.report, "cpu", "victims", pid);
    // Four spinners, and who waits for them.
    assert_eq!(number(victim, "threads"), 5);
    found.assert_waits(pid, number(victim, "lost_ns"));
    let culprit = party(&found.report, "cpu", "culprits", pid);
    assert!(number(culprit, "caused_ns") > 0, "{culprit}");
}

#[test]
#[ignore = "statistical: make truth"]
fn spinners_cause_what_they_ran() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 3);
    let pid = workload.pid();
    let (report, results) = trace(&mut workload);
    let total = |field: &str| sum(&results, field);
    let victim = party(&report, "cpu", "victims", pid);
    // Four spinners, and who waits for them.
    assert_eq!(number(victim, "threads"), 5);
    assert_close(
        "lost",
        number(victim, "lost_ns"),
        total("total.run_delay_ns"),
    );
    // While one of them runs the other three wait, and hardly anybody else does on that CPU.
    let culprit = party(&report, "cpu", "culprits", pid);
    let others = list(&report, "resources.cpu.victims").iter();
    let others = sum(others.filter(|victim| victim["pid"] != pid), "lost_ns");
    let truth = 3 * total("total.oncpu_ns");
    let off = (TOLERANCE * truth as f64) as u64;
    let bounds = truth - off..=truth + off + others;
    assert_within("ns caused", number(culprit, "caused_ns"), bounds, culprit);
    workload.finish();
}

/// What a process has dirtied.
fn written_bytes(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("an account");
    let bytes = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.expect("a line").parse().expect("a number")
}

#[test]
fn fsyncs_are_pressure_on_the_disk() {
    let _machine = Machine::alone();
    let (mut workload, _dir) = program(DISK, "syncer", "sync");
    let pid = workload.pid();
    let before = written_bytes(pid);
    let found = bracketed(&mut workload, "", "/proc/pressure/io");
    found.assert_some("io");
    let culprit = party(&found.report, "io", "culprits", pid);
    // The kernel's own account, which takes a large folio for dirty as a whole.
    let truth = written_bytes(pid) - before;
    assert_eq!(number(culprit, "written_bytes"), truth);
    let n = number(&found.results[0], "n");
    assert!(number(culprit, "ios") >= n, "{culprit} for {n} syncs");
    workload.finish();
}

#[test]
fn cold_reads_of_a_slow_disk_are_pressure_on_it() {
    let _machine = Machine::alone();
    let (mut workload, program) = program(DISK, "reader", "read");
    let pid = workload.pid();
    let slow = Cgroup::on_a_slow_disk(pid, program.dir());
    let found = bracketed(&mut workload, "", "/proc/pressure/io");
    drop(slow);
    workload.finish();
    found.assert_some("io");
    let (report, program) = (&found.report, &found.results[0]);
    let worked = number(program, "start_ns")..number(program, "end_ns");
    let lost = number(party(report, "io", "victims", pid), "lost_ns");
    found.assert_asleep(pid, &worked, lost);
    let culprit = party(report, "io", "culprits", pid);
    let read = number(program, "n") << 16;
    assert_eq!(number(culprit, "read_bytes"), read, "reads of 64 KiB");
}

/// Two seconds of a process that needs four times the memory that it may have: report, what it says itself, its ID.
fn short_of_memory() -> (Value, Vec<Value>, u32) {
    let (mut workload, _dir) = program(WORKING_SET, "hungry", "");
    let pid = workload.pid();
    let limit = Cgroup::short_of_memory(pid, 16 << 20);
    let (report, results) = trace(&mut workload);
    drop(limit);
    workload.finish();
    (report, results, pid)
}

#[test]
fn who_is_beyond_its_limit_is_named_with_every_fault() {
    let _machine = Machine::alone();
    let (report, results, pid) = short_of_memory();
    let lost = number(party(&report, "memory", "victims", pid), "lost_ns");
    let all = number(&report, "resources.memory.task_ns");
    assert_within("its share", lost as f64 / all as f64, 0.9.., &report);
    let culprit = party(&report, "memory", "culprits", pid);
    let truth = number(&results[0], "faults");
    // The program's first and last steps have some of their own.
    assert_within(
        "faults",
        number(culprit, "faults"),
        truth..=truth + 50,
        culprit,
    );
}

#[test]
fn intervals_add_up() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(2, 2);
    let pid = workload.pid();
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tool = Tool::attached("pressure", format!("300ms -j -p {pid}"));
    let around = below.around().expect("the oracle");
    workload.work();
    tool.wait_reports(6);
    let output = tool.end();
    let logs = around.take().expect("whole logs");
    let tids = threads(pid);
    workload.finish();
    let reports = output.reports();
    assert_no_gaps(&reports);
    let lost = sum(&reports, "resources.cpu.task_ns");
    assert_waits(&logs, &tids, lost);
}

#[test]
fn a_report_for_people_fits_and_names_who_it_is() {
    let _machine = Machine::alone();
    // Longer than any window.
    let workload = Workload::spinning(4);
    let pid = workload.pid();
    let text = Tool::run("pressure", "1 1").ok().stdout;
    // A command is whole, however long its path is.
    let is_command = |line: &&str| line.trim_start().starts_with("next: ");
    for line in text.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let first = text.lines().next().expect("a verdict");
    assert!(first.contains("short of"), "{first}");
    assert!(first.contains("CPU ("), "{first}");
    let (who, next) = (
        format!("spinner {pid}, 4 threads"),
        // No shell finds it, so it has its path.
        format!("next: {} -p {pid} 5 1", crate::built("runqlat").display()),
    );
    for part in [who, next] {
        assert!(text.contains(&part), "no {part}: {text}");
    }
}

#[test]
fn a_cgroups_pressure_is_its_own() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 2);
    let cgroup = Cgroup::own(workload.pid());
    let pid = workload.pid();
    let file = format!("{}/cpu.pressure", cgroup.path());
    let found = bracketed(&mut workload, &format!("--cgroup {}", cgroup.path()), &file);
    workload.finish();
    found.assert_some("cpu");
    let cpu = &found.report["resources"]["cpu"];
    only(cpu, "victims");
    found.assert_waits(pid, number(cpu, "task_ns"));
}

/// Two programs that share a CPU: each is the other's victim and culprit.
#[test]
fn stacks_add_up_to_what_was_lost_and_caused_and_are_complete() {
    let _machine = Machine::alone();
    let burn = Program::c("burn", BURN, "");
    let start = || {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", burn.text(), "1000000"]);
        Workload::spawn("burn", command)
    };
    let (mut one, mut other) = (start(), start());
    let waited_ns = |load: &Workload| {
        let task = format!("/proc/{}", load.pid());
        schedstat(task.as_ref())[1]
    };
    let (output, ()) = during("pressure", "-s -j", || {
        let before_ns = [&one, &other].map(waited_ns);
        one.go();
        other.go();
        // Until each has waited for the other for so long, by the kernel's account of what is over.
        until("both wait", || {
            let now_ns = [&one, &other].map(waited_ns);
            let mut pairs = now_ns.iter().zip(&before_ns);
            pairs.all(|(now, before)| now - before > 500_000_000)
        });
        // A stack is told at a turn's end: none lasts beyond the window.
        stop(&one);
        stop(&other);
    });
    let (report, pid) = (output.report(), one.pid());
    assert_eq!(ends_ns(&report), stacks_ns(&report), "{report}");
    for (role, parties, field) in [
        ("victim", "victims", "lost_ns"),
        ("culprit", "culprits", "caused_ns"),
    ] {
        let stacks = list(&report, "resources.cpu.stacks").iter();
        let own = stacks.filter(|stack| stack["pid"] == pid && stack["role"] == role);
        let in_main = |stack: &&Value| list(stack, "user").iter().any(|frame| frame == "main");
        let (all, whole) = (sum(own.clone(), "ns"), sum(own.filter(in_main), "ns"));
        let truth = number(party(&report, "cpu", parties, pid), field);
        assert_within(role, all, truth..=truth, &report["losses"]);
        let share = whole as f64 / all as f64;
        assert_within(
            format!("{role}: share that reaches main"),
            share,
            0.9..,
            all,
        );
    }
}

/// Time of user stacks, however they ended, ns.
fn ends_ns(report: &Value) -> u64 {
    let ends = report["user_ends"].as_object().expect("an object");
    ends.values().filter_map(Value::as_u64).sum()
}

/// Time of all stacks with a user's side, ns.
fn stacks_ns(report: &Value) -> u64 {
    let resources = ["cpu", "memory", "io"].into_iter();
    let stacks =
        resources.flat_map(|resource| list(report, &format!("resources.{resource}.stacks")));
    sum(
        stacks.filter(|stack| !list(stack, "user").is_empty() && stack["ns"].is_u64()),
        "ns",
    )
}
