//! pressure against PSI's totals, schedstat and programs that time themselves.

use std::process::Command;

use oracle::Engine;
use serde_json::Value;

use crate::c_program::{BURN, compile};
use crate::cpu_times::stolen_ns;
use crate::kernel::alone;
use crate::own_cgroup::OwnCgroup;
use crate::psi::{assert_waits, bracketed, threads};
use crate::shortages::{DISK, WORKING_SET, program};
use crate::slow_disk::SlowDisk;
use crate::small_memory::SmallMemory;
use crate::tool::Tool;
use crate::traced::{assert_no_gaps, logged, reported};
use crate::workload::{Workload, number};

/// Error allowed against the kernel's Δtotal, and against what programs know.
const TOLERANCE: f64 = 0.05;

/// Runs a prepared workload under `pressure -j OPTIONS` from "go" to its end.
fn trace(workload: &mut Workload, options: &[&str]) -> (Value, Vec<Value>) {
    let (report, results) = reported("pressure", options, workload);
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
pub(crate) fn party<'a>(report: &'a Value, resource: &str, list: &str, pid: u32) -> &'a Value {
    let parties = report["resources"][resource][list]
        .as_array()
        .expect("a list");
    let mut own = parties.iter().filter(|party| party["pid"] == pid);
    own.next()
        .unwrap_or_else(|| panic!("{pid} is not among the {list} of {resource}"))
}

fn assert_close(found: u64, truth: u64, what: &str) {
    assert!(
        found.abs_diff(truth) <= (TOLERANCE * truth as f64) as u64,
        "{what}: {found} ns, not {truth} ns"
    );
}

#[test]
fn spinners_lose_what_the_kernel_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 3);
    let pid = workload.pid();
    let found = bracketed(&mut workload, &[], "/proc/pressure/cpu");
    workload.finish();
    found.assert_some("cpu");
    let victim = party(&found.report, "cpu", "victims", pid);
    assert_eq!(
        number(victim, "threads"),
        5,
        "four spinners and who waits for them"
    );
    found.assert_waits(pid, number(victim, "lost_ns"));
    let culprit = party(&found.report, "cpu", "culprits", pid);
    assert!(number(culprit, "caused_ns") > 0, "{culprit}");
}

#[test]
#[ignore = "statistical: make truth"]
fn spinners_cause_what_they_ran() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 3);
    let pid = workload.pid();
    let (report, results) = trace(&mut workload, &[]);
    let total = |field: &str| {
        results
            .iter()
            .map(|thread| number(thread, field))
            .sum::<u64>()
    };
    let victim = party(&report, "cpu", "victims", pid);
    assert_eq!(
        number(victim, "threads"),
        5,
        "four spinners and who waits for them"
    );
    assert_close(
        number(victim, "lost_ns"),
        total("total.run_delay_ns"),
        "lost",
    );
    // While one of them runs the other three wait, and hardly anybody else does on that CPU. They wait, too, while a hypervisor has
    // it, which is nobody's time on a CPU.
    let stolen = 3 * stolen_ns();
    let culprit = party(&report, "cpu", "culprits", pid);
    let others: u64 = report["resources"]["cpu"]["victims"]
        .as_array()
        .expect("victims")
        .iter()
        .filter(|victim| victim["pid"] != pid)
        .map(|victim| number(victim, "lost_ns"))
        .sum();
    let (caused, least) = (number(culprit, "caused_ns"), 3 * total("total.oncpu_ns"));
    assert!(
        caused as f64 >= (1.0 - TOLERANCE) * least as f64
            && caused as f64 <= (1.0 + TOLERANCE) * least as f64 + (others + stolen) as f64,
        "caused {caused} ns, 3 x time on the CPU is {least} ns, others lost {others} ns, {stolen} ns for what was stolen"
    );
    workload.finish();
}

/// What a process has dirtied.
fn written_bytes(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("an account");
    let mut lines = io
        .lines()
        .filter_map(|line| line.strip_prefix("write_bytes: "));
    lines
        .next()
        .and_then(|bytes| bytes.parse().ok())
        .expect("a number")
}

#[test]
fn fsyncs_are_pressure_on_the_disk() {
    let Some(_machine) = alone() else {
        return;
    };
    let (mut workload, _dir) = program(DISK, "syncer", &["sync"]);
    let pid = workload.pid();
    let before = written_bytes(pid);
    let found = bracketed(&mut workload, &[], "/proc/pressure/io");
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
    let Some(_machine) = alone() else {
        return;
    };
    let (mut workload, dir) = program(DISK, "reader", &["read"]);
    let pid = workload.pid();
    let slow = SlowDisk::new(pid, dir.path());
    let found = bracketed(&mut workload, &[], "/proc/pressure/io");
    drop(slow);
    workload.finish();
    found.assert_some("io");
    let (report, program) = (&found.report, &found.results[0]);
    let worked = number(program, "start_ns")..number(program, "end_ns");
    let lost = number(party(report, "io", "victims", pid), "lost_ns");
    found.assert_asleep(pid, &worked, lost);
    let n = number(program, "n");
    assert_eq!(
        number(party(report, "io", "culprits", pid), "read_bytes"),
        n << 16,
        "{n} reads of 64 KiB"
    );
}

/// Two seconds of a process that needs four times the memory that it may have: report, what it says itself, its ID.
fn short_of_memory() -> (Value, Vec<Value>, u32) {
    let (mut workload, _dir) = program(WORKING_SET, "hungry", &[]);
    let pid = workload.pid();
    let limit = SmallMemory::new(pid, 16 << 20);
    let (report, results) = trace(&mut workload, &[]);
    drop(limit);
    workload.finish();
    (report, results, pid)
}

#[test]
fn who_is_beyond_its_limit_is_named_with_every_fault() {
    let Some(_machine) = alone() else {
        return;
    };
    let (report, results, pid) = short_of_memory();
    let memory = &report["resources"]["memory"];
    let lost = number(party(&report, "memory", "victims", pid), "lost_ns");
    let all = number(memory, "task_ns");
    assert!(
        lost as f64 >= 0.9 * all as f64,
        "{lost} ns of {all} ns are its own"
    );
    let culprit = party(&report, "memory", "culprits", pid);
    let (found, truth) = (number(culprit, "faults"), number(&results[0], "faults"));
    // The program's first and last steps have some of their own.
    assert!(
        found >= truth && found <= truth + 50,
        "{found} faults, not {truth}"
    );
}

#[test]
fn intervals_add_up() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(2, 2);
    let pid = workload.pid();
    let pid_text = pid.to_string();
    let start = || Tool::start("pressure", &["-j", "-p", &pid_text, "300ms"]);
    let (output, _, logs) = logged(&[Engine::Scheduler], start, &mut workload);
    let tids = threads(pid);
    workload.finish();
    let reports = output.reports();
    assert!(reports.len() >= 6, "{}", reports.len());
    assert_no_gaps(&reports);
    let lost: u64 = reports
        .iter()
        .map(|report| number(&report["resources"]["cpu"], "task_ns"))
        .sum();
    assert_waits(&logs, &tids, lost);
}

#[test]
fn a_report_for_people_fits_and_names_who_it_is() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 2);
    let pid = workload.pid();
    let tool = Tool::start("pressure", &["1", "1"]);
    tool.wait_attached();
    workload.go();
    let output = tool.finish();
    let text = &output.stdout;
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let first = text.lines().next().expect("a verdict");
    assert!(
        first.contains("short of") && first.contains("CPU ("),
        "{first}"
    );
    assert!(
        text.contains(&format!("spinner {pid}, 5 threads")),
        "{text}"
    );
    assert!(
        text.contains(&format!("next: runqlat -p {pid} 5 1")),
        "{text}"
    );
    workload.results();
    workload.finish();
}

#[test]
fn a_cgroups_pressure_is_its_own() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 2);
    let cgroup = OwnCgroup::new(workload.pid());
    let pid = workload.pid();
    let file = format!("{}/cpu.pressure", cgroup.path());
    let found = bracketed(&mut workload, &["--cgroup", cgroup.path()], &file);
    workload.finish();
    found.assert_some("cpu");
    let cpu = &found.report["resources"]["cpu"];
    let victims = cpu["victims"].as_array().expect("victims");
    assert_eq!(victims.len(), 1, "{victims:?}");
    found.assert_waits(pid, number(cpu, "task_ns"));
}

/// Two programs that share a CPU: each is the other's victim and culprit.
#[test]
fn stacks_add_up_to_what_was_lost_and_caused_and_are_complete() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let burn = compile(dir.path(), "burn", BURN, &[]);
    let start = || {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&burn).arg("1500");
        Workload::spawn("burn", command).0
    };
    let (mut one, mut other) = (start(), start());
    let tool = Tool::start("pressure", &["-s", "-j"]);
    tool.wait_attached();
    one.go();
    other.go();
    one.results();
    other.results();
    tool.interrupt();
    let output = tool.finish();
    let report = output.report();
    let pid = one.pid();
    let stacks = report["resources"]["cpu"]["stacks"]
        .as_array()
        .expect("stacks");
    for (role, list, field) in [
        ("victim", "victims", "lost_ns"),
        ("culprit", "culprits", "caused_ns"),
    ] {
        let own = stacks
            .iter()
            .filter(|stack| stack["pid"] == pid && stack["role"] == role);
        let (mut all, mut whole) = (0, 0);
        for stack in own {
            all += number(stack, "ns");
            let user = stack["user"].as_array().expect("frames");
            if user.iter().any(|frame| frame == "main") {
                whole += number(stack, "ns");
            }
        }
        let truth = number(party(&report, "cpu", list, pid), field);
        assert_close(all, truth, role);
        assert!(
            whole as f64 >= 0.9 * all as f64,
            "{role}: {whole} of {all} ns reach main"
        );
    }
    one.finish();
    other.finish();
}
