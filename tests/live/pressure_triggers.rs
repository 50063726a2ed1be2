//! pressure --trigger: nothing before it fires, tracing at once after; and kernels without PSI.

use std::fs;
use std::process::Command;

use oracle::Engine;
use serde_json::Value;

use crate::cpu_times::{stolen_ns, watch_cpus};
use crate::kernel::{alone, beside};
use crate::own_cgroup::OwnCgroup;
use crate::pressure::party;
use crate::psi::{assert_waits, threads};
use crate::tool::Tool;
use crate::traced::logged;
use crate::workload::{Workload, number};

/// From the kernel's word to the beginning of the window.
const PROMISED_MS: f64 = 100.0;
/// From the trigger's coming near to the tracing, all CPUs.
const MOST_STOLEN_NS: u64 = 50_000_000;

fn has_sys_resource() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("CapEff:"));
    let mask = lines.next().expect("a mask").trim();
    u64::from_str_radix(mask, 16).expect("hexadecimal") >> CAP_SYS_RESOURCE & 1 == 1
}

/// ns on a CPU of all threads, and BPF programs attached.
fn cost(pid: u32) -> (u64, usize) {
    let list = |dir: &str| {
        let entries = fs::read_dir(format!("/proc/{pid}/{dir}")).expect("a live process");
        entries
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    let oncpu = list("task").into_iter().map(|thread| {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        let first = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        first.unwrap_or(0)
    });
    let links = list("fdinfo").into_iter().filter(|fd| {
        let text = fs::read_to_string(fd).unwrap_or_default();
        text.lines().any(|line| line.starts_with("link_type:"))
    });
    (oncpu.sum(), links.count())
}

#[test]
#[ignore = "statistical: make truth"]
fn a_trigger_has_nothing_attached_before_it_fires_and_traces_at_once_after() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(8, 8);
    let pid = workload.pid();
    // Of its own cgroup: nothing else brings that about.
    let cgroup = OwnCgroup::new(pid);
    let args = [
        "--cgroup",
        cgroup.path(),
        "--trigger",
        "cpu some 1s/2s",
        "-j",
        "1",
    ];
    let tool = Tool::start("pressure", &args);
    tool.wait_saying("pressure: waiting for cpu some 1s/2s");
    assert_eq!(cost(tool.pid()).1, 0, "programs are attached");
    watch_cpus();
    workload.go();
    tool.wait_saying("pressure: tracing");
    let stolen = stolen_ns().min(MOST_STOLEN_NS) as f64 / 1e6;
    let output = tool.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let line = output
        .stderr
        .lines()
        .find(|line| line.contains("after the trigger"))
        .expect("it says how late it is");
    let late = line
        .split_whitespace()
        .rev()
        .skip_while(|word| *word != "ms")
        .nth(1);
    let late: f64 = late.and_then(|ms| ms.parse().ok()).expect("a number");
    assert!(
        late <= PROMISED_MS + stolen,
        "{late} ms after the trigger, {stolen} ms stolen"
    );
    eprintln!("{late} ms after the trigger");
    let report: Value = serde_json::from_str(&output.stdout).expect("one object");
    let length = number(&report, "end_ns") - number(&report, "start_ns");
    assert!(
        (1_000_000_000..1_300_000_000).contains(&length),
        "{length} ns"
    );
    let victims = report["resources"]["cpu"]["victims"]
        .as_array()
        .expect("victims");
    assert_eq!(victims[0]["pid"], pid, "{}", victims[0]);
    workload.results();
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn a_trigger_that_waits_uses_no_cpu() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut sleeper = Workload::start(
        "waiter",
        &["--waits", "23", "--millis", "50", "--kinds", "sleep"],
    );
    let tool = Tool::start("pressure", &["--trigger", "memory full 2s/2s"]);
    tool.wait_saying("pressure: waiting for memory full 2s/2s");
    // From its sleep on it has not been on a CPU: more than a second of the sleeper's time.
    let before = cost(tool.pid());
    sleeper.go();
    sleeper.results();
    let after = cost(tool.pid());
    let used = after.0 - before.0;
    assert!(used < 1_000_000, "{used} ns on a CPU while waiting");
    assert_eq!(after.1, 0, "programs are attached");
    tool.interrupt();
    let output = tool.finish();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, ""),
        "{}",
        output.stderr
    );
    sleeper.finish();
}

#[test]
fn windows_without_privilege_are_multiples_of_two_seconds_and_it_says_so() {
    let Some(_machine) = beside() else {
        return;
    };
    let tool = Tool::start("pressure", &["--trigger", "memory full 1s/1s"]);
    if has_sys_resource() {
        tool.wait_saying("pressure: waiting for memory full 1s/1s;");
    } else {
        tool.wait_saying(
            "pressure: waiting for memory full 2s/2s (for memory full 1s/1s: without CAP_SYS_RESOURCE",
        );
    }
    tool.interrupt();
    assert_eq!(tool.finish().code, 0);
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
    let Some(_machine) = alone() else {
        return;
    };
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
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 2);
    let pid = workload.pid();
    let tool = without_psi(&["1", "1"]);
    tool.wait_attached();
    workload.go();
    let output = tool.finish();
    assert!(
        output.stderr.contains("boot it with psi=1")
            && output.stderr.contains("SOME, FULL and AVG10 are unknown"),
        "{}",
        output.stderr
    );
    let text = &output.stdout;
    let verdict = text.lines().next().expect("a verdict");
    assert!(verdict.contains("short of CPU ("), "{text}");
    assert!(verdict.contains("tasks waiting"), "{text}");
    assert!(text.contains(&format!("spinner {pid}, ")), "{text}");
    let row = text.lines().find(|line| line.starts_with("CPU "));
    let row = row.expect("a row").split_whitespace();
    assert_eq!(row.rev().take(4).collect::<Vec<_>>(), ["-"; 4], "{text}");
    workload.results();
    workload.finish();
    let refused = without_psi(&["--trigger", "cpu some 1s/2s"]).finish();
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.starts_with("pressure: --trigger needs PSI")
            && refused.stderr.contains("psi=1")
            && refused.stderr.lines().count() == 1,
        "{}",
        refused.stderr
    );
}

#[test]
fn a_trigger_repeats_until_it_is_told_to_end() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 9);
    let cgroup = OwnCgroup::new(workload.pid());
    let trigger = ["--trigger", "cpu some 1s/2s", "--repeat", "-j", "500ms"];
    let args: Vec<&str> = ["--cgroup", cgroup.path()]
        .into_iter()
        .chain(trigger)
        .collect();
    let tool = Tool::start("pressure", &args);
    tool.wait_saying("pressure: waiting for cpu some 1s/2s");
    workload.go();
    workload.results();
    tool.interrupt();
    let output = tool.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let reports = output.reports();
    // At most once per window of two seconds.
    assert!(
        (2..=4).contains(&reports.len()),
        "{} reports",
        reports.len()
    );
    for report in &reports {
        let cpu = &report["resources"]["cpu"];
        // Each capture begins from nothing: three of four spinners wait, or all when others have their CPU.
        let length = number(report, "end_ns") - number(report, "start_ns");
        let at_a_time = number(cpu, "task_ns") as f64 / length as f64;
        assert!((2.7..=4.05).contains(&at_a_time), "{at_a_time} at a time");
    }
    workload.finish();
}
