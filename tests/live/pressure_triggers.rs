//! pressure --trigger: nothing before it fires, tracing at once after; and kernels without PSI.

use std::fs;
use std::process::Command;

use host::clock::monotonic_ns;
use oracle::Engine;

use crate::cgroup::Cgroup;
use crate::held::Held;
use crate::kernel::{schedstat, tasks};
use crate::prelude::*;
use crate::pressure::party;
use crate::psi::{assert_waits, threads};
use crate::traced::logged;

/// From the kernel's word to the beginning of the window.
const PROMISED_MS: f64 = 100.0;

fn has_sys_resource() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16);
    mask.expect("hexadecimal") >> CAP_SYS_RESOURCE & 1 == 1
}

/// ns on a CPU of all threads, and BPF programs attached.
fn cost(pid: u32) -> (u64, usize) {
    let oncpu = tasks(pid).iter().map(|task| schedstat(task)[0]).sum();
    (oncpu, Held::by(pid).links.len())
}

#[test]
#[ignore = "statistical: make truth"]
fn a_trigger_has_nothing_attached_before_it_fires_and_traces_at_once_after() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(8, 8);
    let pid = workload.pid();
    // Of its own cgroup: nothing else brings that about.
    let cgroup = Cgroup::own(pid);
    let options = ["-j", "1", "--cgroup", cgroup.path()];
    let args = [&options[..], &["--trigger", "cpu some 1s/2s"]].concat();
    let tool = Tool::start("pressure", args);
    tool.wait_saying("pressure: waiting for cpu some 1s/2s");
    assert_eq!(cost(tool.pid()).1, 0, "programs are attached");
    workload.go();
    tool.wait_saying("pressure: tracing");
    let output = tool.finish().ok();
    let mut lines = output.stderr.lines();
    let line = lines.find(|line| line.contains("after the trigger"));
    let line = line.expect("it says how late it is");
    let words = line.split_whitespace();
    let late = words.rev().skip_while(|word| *word != "ms").nth(1);
    let late: f64 = late.and_then(|ms| ms.parse().ok()).expect("a number");
    assert_within("ms after the trigger", late, ..=PROMISED_MS, line);
    let report = output.report();
    let length = number(&report, "end_ns") - number(&report, "start_ns");
    assert_within("ns", length, 1_000_000_000..1_300_000_000, &report);
    let victim = &report["resources"]["cpu"]["victims"][0];
    assert_eq!(victim["pid"], pid, "{victim}");
    workload.results();
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn a_trigger_that_waits_uses_no_cpu() {
    let _machine = Machine::alone();
    let mut sleeper = Workload::start("waiter", "--waits 23 --millis 50 --kinds sleep");
    let tool = Tool::start("pressure", ["--trigger", "memory full 2s/2s"]);
    tool.wait_saying("pressure: waiting for memory full 2s/2s");
    // From its sleep on it has not been on a CPU: more than a second of the sleeper's time.
    let before = cost(tool.pid());
    sleeper.work();
    let after = cost(tool.pid());
    assert_within(
        "ns on a CPU while waiting",
        after.0 - before.0,
        ..1_000_000,
        "",
    );
    assert_eq!(after.1, 0, "programs are attached");
    assert_eq!(tool.end().stdout, "");
    sleeper.finish();
}

#[test]
fn windows_without_privilege_are_multiples_of_two_seconds_and_it_says_so() {
    let _machine = Machine::beside();
    let tool = Tool::start("pressure", ["--trigger", "memory full 1s/1s"]);
    tool.wait_saying(if has_sys_resource() {
        "pressure: waiting for memory full 1s/1s;"
    } else {
        "pressure: waiting for memory full 2s/2s (for memory full 1s/1s: without CAP_SYS_RESOURCE"
    });
    tool.end();
}

/// The tool in a mount namespace without pressure files.
fn without_psi(args: &[&str]) -> Tool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.args(["mount -t tmpfs none /proc/pressure && exec \"$@\"", "sh"]);
    command.arg(crate::built("pressure")).args(args);
    Tool::spawn("pressure", command)
}

#[test]
fn without_psi_victims_keep_their_sums() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 2);
    let pid = workload.pid();
    let (output, _, logs) = logged(&[Engine::Scheduler], || without_psi(&["-j"]), &mut workload);
    let tids = threads(pid);
    workload.finish();
    let report = output.report();
    let cpu = &report["resources"]["cpu"];
    assert_eq!(cpu["psi"], Value::Null);
    assert_eq!(cpu["ratio"], Value::Null);
    let victim = party(&report, "cpu", "victims", pid);
    assert_waits(&logs, &tids, number(victim, "lost_ns"));
    let culprit = party(&report, "cpu", "culprits", pid);
    assert!(number(culprit, "caused_ns") > 0, "{culprit}");
}

#[test]
fn without_psi_the_remedy_is_named() {
    let _machine = Machine::alone();
    // Longer than any window.
    let workload = Workload::spinning(4);
    let pid = workload.pid();
    let output = without_psi(&["1", "1"]).finish();
    output.assert_says("boot it with psi=1");
    output.assert_says("SOME, FULL and AVG10 are unknown");
    let text = &output.stdout;
    let verdict = text.lines().next().expect("a verdict");
    assert!(verdict.contains("short of CPU ("), "{text}");
    assert!(verdict.contains("threads waiting"), "{text}");
    assert!(text.contains(&format!("spinner {pid}, ")), "{text}");
    let row = text.lines().find(|line| line.starts_with("CPU "));
    let row = row.expect("a row").split_whitespace();
    assert_eq!(row.rev().take(4).collect::<Vec<_>>(), ["-"; 4], "{text}");
    drop(workload);
    let refused = without_psi(&["--trigger", "cpu some 1s/2s"])
        .finish()
        .status(1);
    let said = &refused.stderr;
    assert!(said.starts_with("pressure: --trigger needs PSI"), "{said}");
    refused.assert_says("psi=1");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_trigger_repeats_until_it_is_told_to_end() {
    let _machine = Machine::alone();
    const WINDOW_NS: u64 = 2_000_000_000;
    let workload = Workload::spinning(4);
    let cgroup = Cgroup::own(workload.pid());
    let options = ["-j", "500ms", "--repeat", "--cgroup", cgroup.path()];
    let args = [&options[..], &["--trigger", "cpu some 1s/2s"]].concat();
    let began_ns = monotonic_ns();
    let tool = Tool::start("pressure", args);
    tool.wait_reports(3);
    let output = tool.end();
    let reports = output.reports();
    // At most once per window of two seconds.
    let last = &reports[reports.len() - 1];
    let since_ns = number(last, "start_ns") - began_ns;
    let windows = reports.len() as u64 - 1;
    assert_within("ns", since_ns, windows * WINDOW_NS.., &output.stdout);
    for report in &reports {
        // Each capture begins from nothing: three of four spinners wait, or all when others have their CPU.
        let length = number(report, "end_ns") - number(report, "start_ns");
        let waited = number(report, "resources.cpu.task_ns");
        let at_a_time = waited as f64 / length as f64;
        assert_within("at a time", at_a_time, 2.7..=4.05, report);
    }
}
