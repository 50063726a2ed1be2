//! Whose events count: processes, threads, names and cgroups, also when they change during the run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::c_program::compile;
use crate::cpu_times::{assert_cpu_time, stolen_of, stolen_samples, untaken_samples};
use crate::kernel::{alone, beside};
use crate::tool::Tool;
use crate::workload::{Workload, number};

const PHASES: &str = include_str!("../workloads/targets/phases.c");

const ROUNDS: u64 = 23;

pub(crate) fn start_phases(dir: &Path, names: &[&str]) -> Workload {
    let program = compile(dir, "phases", PHASES, &[]);
    let mut command = std::process::Command::new(program);
    command.args(names);
    Workload::spawn("phases", command).0
}

pub(crate) fn phase(workload: &mut Workload) -> Value {
    workload.go();
    workload.results().pop().expect("one result a phase")
}

/// Every tool at once on the same target.
pub(crate) struct Tools([Tool; 3]);

impl Tools {
    pub(crate) fn start(targets: &[&str]) -> Self {
        let start = |name: &str, options: &[&str]| {
            let tool = Tool::start(name, &[options, targets].concat());
            tool.wait_attached();
            tool
        };
        Self([
            start("offcputime", &["-j"]),
            start("profile", &["-j", "--threads", "-F", "997"]),
            start("runqlat", &["-j", "-L", "--wakeup"]),
        ])
    }

    pub(crate) fn reports(self) -> [Value; 3] {
        self.0.iter().for_each(Tool::interrupt);
        self.0.map(|tool| {
            let output = tool.finish();
            assert_eq!(output.code, 0, "{}", output.stderr);
            serde_json::from_str(&output.stdout).expect("JSON")
        })
    }
}

pub(crate) fn stacks(report: &Value) -> &[Value] {
    report["stacks"].as_array().expect("stacks")
}

pub(crate) fn groups(report: &Value) -> &[Value] {
    report["groups"].as_array().expect("groups")
}

fn near(found: u64, truth: u64, tolerance: f64, what: &str) {
    let (found, truth) = (found as f64, truth as f64);
    assert!(
        (found - truth).abs() <= tolerance * truth,
        "{what}: {found}, {truth} expected"
    );
}

/// Ticks of a clock.
fn assert_sampled(profile: &Value, found: u64, truth: u64) {
    let (untaken, stolen) = (untaken_samples(profile), stolen_samples(997.0));
    let (least, most) = (0.95 * truth as f64 - untaken, 1.05 * truth as f64 + stolen);
    assert!(
        (least..=most).contains(&(found as f64)),
        "samples: {found}, {truth}, {untaken} less to {stolen} more expected"
    );
}

/// Time and number of one thread's sleeps.
fn sleeps(report: &Value, tid: u64) -> (u64, u64) {
    let own = stacks(report)
        .iter()
        .filter(|stack| stack["tid"] == tid && stack["reason"] == "sleep");
    own.fold((0, 0), |(time, count), stack| {
        let values = stack["values"].as_array().expect("values").iter();
        let values = values.filter_map(Value::as_u64).sum::<u64>();
        (time + values, count + number(stack, "count"))
    })
}

fn samples(report: &Value, tid: u64) -> u64 {
    let own = stacks(report).iter().filter(|stack| stack["tid"] == tid);
    own.map(|stack| number(stack, "count")).sum()
}

fn wakeups(report: &Value, tid: u64) -> u64 {
    let own = groups(report).iter().filter(|group| group["tid"] == tid);
    own.map(|group| number(group, "count")).sum()
}

/// A sleep's time off the CPU is all of it but the CPU time that going to sleep and waking took, the tools' included, and but what
/// it waited for a CPU, preempted on the way there or back: that is no sleep's. The kernel charges the way from wakeup to
/// switch as CPU time, too, when the CPU was idle. What a hypervisor takes on the way is in none of these, and the kernel tells it in
/// steps of 10 ms only, so that time by which a sleep is late may be its own or not. `hidden` is what we say was lost.
fn assert_asleep(found: u64, phase: &Value, hidden: u64) {
    let most = number(phase, "sleep_ns");
    let awake = number(phase, "sleep_cpu_ns") + number(phase, "sleep_wait_ns");
    let late = stolen_of(number(phase, "sleep_late_ns"));
    let hidden = hidden.min(most / 4);
    let least = 0.99 * most.saturating_sub(awake + late + hidden) as f64;
    assert!(
        (least as u64..=most).contains(&found),
        "asleep: {found}, {hidden} hidden, {phase}"
    );
}

/// All three tools saw one phase of a thread and nothing else of it.
pub(crate) fn assert_phase([offcputime, profile, runqlat]: &[Value; 3], tid: u64, phase: &Value) {
    let (time, count) = sleeps(offcputime, tid);
    // Switches that a sandbox's kernel hides can be made up for since 6.18 only.
    let lost = |field: &str| number(offcputime, &format!("losses.{field}"));
    let hidden = lost("out_of_order");
    assert!(
        (ROUNDS - hidden.min(ROUNDS / 4)..=ROUNDS).contains(&count),
        "{offcputime:#}"
    );
    assert_asleep(time, phase, lost("out_of_order_ns"));
    let truth = number(phase, "burn_ns") * 997 / 1_000_000_000;
    assert_sampled(profile, samples(profile, tid), truth);
    // The phase's sleeps, and the read for the next "go", unless that had come before it.
    let woken = wakeups(runqlat, tid);
    let unseen = number(runqlat, "losses.unseen");
    assert!(
        woken + unseen >= ROUNDS && woken <= ROUNDS + 1,
        "{runqlat:#}"
    );
}

#[test]
fn a_process_is_all_that_is_traced() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut wanted = Workload::start("spinner", &["--threads", "2", "--seconds", "0.5"]);
    let mut other = Workload::start("spinner", &["--threads", "2", "--seconds", "0.5"]);
    let pid = wanted.pid();
    let tools = Tools::start(&["-p", &pid.to_string()]);
    wanted.go();
    other.go();
    let results = wanted.results();
    other.results();
    let [offcputime, profile, runqlat] = tools.reports();
    wanted.finish();
    other.finish();
    for report in [&offcputime, &profile] {
        assert!(!stacks(report).is_empty());
        for stack in stacks(report) {
            assert_eq!(stack["pid"], pid, "{stack}");
        }
    }
    assert!(!groups(&runqlat).is_empty());
    for group in groups(&runqlat) {
        let tid = number(group, "tid");
        let own = results.iter().any(|thread| number(thread, "tid") == tid);
        assert!(own || tid == u64::from(pid), "{group}");
    }
}

#[test]
fn a_thread_is_all_that_is_traced() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(3, 1);
    let pid = workload.pid();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let tid = tasks
        .flatten()
        .find(|task| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim() == "spinner-1")
        })
        .and_then(|task| task.file_name().to_str()?.parse::<u64>().ok())
        .expect("the second thread");
    let tools = Tools::start(&["-t", &tid.to_string()]);
    workload.go();
    let results = workload.results();
    let [offcputime, profile, runqlat] = tools.reports();
    workload.finish();
    let thread = results
        .iter()
        .find(|thread| number(thread, "tid") == tid)
        .expect("its own account");
    for entry in [stacks(&offcputime), stacks(&profile), groups(&runqlat)].concat() {
        assert_eq!(number(&entry, "tid"), tid, "{entry}");
    }
    assert_eq!(number(&offcputime, "accounting.threads"), 1);
    let truth = number(thread, "total.oncpu_ns");
    assert_cpu_time(number(&offcputime, "accounting.oncpu_ns"), truth, 0.02);
    assert_sampled(
        &profile,
        samples(&profile, tid),
        truth * 997 / 1_000_000_000,
    );
}

fn of_command(tool: &str, options: &[&str], command: &[&str]) -> Value {
    let args = [&["-j", "-q"], options, &["--"], command].concat();
    let output = Tool::start(tool, &args).finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("JSON")
}

/// Before its exec a command is a child of the tool, which waits for its start and looks for the program.
#[test]
fn a_command_counts_from_its_exec_on() {
    let Some(_machine) = beside() else {
        return;
    };
    let sleep = ["sleep", "0.05"];
    let offcputime = of_command("offcputime", &["-m", "0"], &sleep);
    let runqlat = of_command("runqlat", &["-P"], &sleep);
    for found in [stacks(&offcputime), groups(&runqlat)] {
        assert!(!found.is_empty());
        for entry in found {
            assert_eq!(entry["comm"], "sleep", "{entry}");
        }
    }
    assert_eq!(number(&offcputime, "accounting.threads"), 1);
    let asleep: u64 = stacks(&offcputime)
        .iter()
        .map(|stack| stack["reason"] == "sleep")
        .map(u64::from)
        .sum();
    assert_eq!(asleep, 1, "{offcputime:#}");

    // The call that makes the child the command is not the command's own.
    let calls = ["-e", "tracepoint:syscalls:sys_enter_execve"];
    let profile = of_command("profile", &calls, &["sh", "-c", "exec /bin/true"]);
    let found: Vec<&Value> = stacks(&profile).iter().collect();
    assert_eq!(found.len(), 1, "{profile:#}");
    assert_eq!(
        (&found[0]["comm"], &found[0]["count"]),
        (&"sh".into(), &1.into())
    );
}

#[test]
fn a_commands_children_are_followed_through_names_that_are_not_asked_for() {
    let Some(_machine) = beside() else {
        return;
    };
    let script = ["sh", "-c", "sh -c 'sleep 0.05; :'; :"];
    let named = ["--comm", "sl?ep"];
    let offcputime = of_command("offcputime", &named, &script);
    let profile = of_command("profile", &[&named[..], &["-e", "cs"]].concat(), &script);
    let runqlat = of_command("runqlat", &[&named[..], &["-P"]].concat(), &script);
    for found in [stacks(&offcputime), stacks(&profile), groups(&runqlat)] {
        assert!(!found.is_empty());
        for entry in found {
            assert_eq!(entry["comm"], "sleep", "{entry}");
        }
    }
    let is_sleep = |stack: &&Value| stack["reason"] == "sleep";
    let asleep = stacks(&offcputime).iter().filter(is_sleep);
    assert_eq!(asleep.map(|stack| number(stack, "count")).sum::<u64>(), 1);
}

#[test]
fn a_name_counts_while_a_thread_has_it() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = start_phases(dir.path(), &["before", "wanted-1", "after"]);
    let tid = u64::from(workload.pid());
    let tools = Tools::start(&["--comm", "wan[s-u]ed-?"]);
    phase(&mut workload);
    let named = phase(&mut workload);
    let after = phase(&mut workload);
    let reports = tools.reports();
    workload.finish();
    assert_phase(&reports, tid, &named);
    for stack in [stacks(&reports[0]), stacks(&reports[1])].concat() {
        assert_eq!(stack["comm"], "wanted-1", "{stack}");
    }
    let lifetime = number(&after, "start_ns") - number(&named, "start_ns");
    near(
        number(&reports[0], "accounting.lifetime_ns"),
        lifetime,
        0.01,
        "life under that name",
    );
}

#[test]
fn a_directory_that_is_no_cgroup_is_refused_with_the_place_to_look() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in ["offcputime", "profile", "runqlat"] {
        let output = Tool::start(tool, &["--cgroup", "/tmp", "1"]).finish();
        assert_eq!(output.code, 1);
        let expected = format!("{tool}: cgroup /tmp: not a cgroup v2 directory; cgroup v2 is");
        assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
        let output = Tool::start(tool, &["-p", "4194304", "1"]).finish();
        let expected = format!("{tool}: no process 4194304; it may have exited (see ps -e)\n");
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (1, expected.as_str())
        );
    }
}
