//! Whose events count: processes, threads, names and cgroups, also when they change during the run.

use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::process::Command;

use oracle::{Around, Below, Engine, Logs, Span};

use crate::c_program::compile;
use crate::kernel::{id_of, tasks};
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::run_queue::assert_waits;

const PHASES: &str = include_str!("../workloads/targets/phases.c");

const ROUNDS: u64 = 23;

pub(crate) fn start_phases(dir: &Path, names: &[&str]) -> Workload {
    let mut command = Command::new(compile(dir, "phases", PHASES, ""));
    command.args(names);
    Workload::spawn("phases", command)
}

pub(crate) fn phase(workload: &mut Workload) -> Value {
    workload.work().pop().expect("one result a phase")
}

/// Every tool at once on the same target, between two logs.
pub(crate) struct Tools {
    tools: [Tool; 3],
    logs: Around,
}

/// What they say of it: offcputime, profile and runqlat.
pub(crate) struct Seen {
    pub(crate) reports: [Value; 3],
    pub(crate) logs: Logs,
}

impl Tools {
    pub(crate) fn start(targets: &str) -> Self {
        let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
        let tools = [
            ("offcputime", "-j -m 0"),
            ("profile", "-j --threads -e cs"),
            ("runqlat", "-j -L --wakeup"),
        ];
        let start = |(name, options)| Tool::attached(name, format!("{options} {targets}"));
        let tools = tools.map(start);
        Self {
            tools,
            logs: below.around().expect("the oracle"),
        }
    }

    pub(crate) fn reports(self) -> Seen {
        Seen {
            reports: ended(self.tools),
            logs: self.logs.take().expect("whole logs"),
        }
    }
}

/// Ends them together; their reports.
pub(crate) fn ended<const N: usize>(tools: [Tool; N]) -> [Value; N] {
    tools.iter().for_each(Tool::interrupt);
    tools.map(|tool| tool.finish().ok().report())
}

pub(crate) fn stacks(report: &Value) -> &[Value] {
    list(report, "stacks")
}

pub(crate) fn groups(report: &Value) -> &[Value] {
    list(report, "groups")
}

fn samples(report: &Value, tid: u64) -> u64 {
    sum(
        stacks(report).iter().filter(|stack| stack["tid"] == tid),
        "count",
    )
}

/// There is something, and all of it is under this name.
fn assert_all_called(entries: &[Value], name: &str) {
    assert!(!entries.is_empty());
    for entry in entries {
        assert_eq!(entry["comm"], name, "{entry}");
    }
}

/// When a thread came to be a target, and when it ceased to be one, each from before to after it did.
pub(crate) struct Membership {
    pub(crate) begins: RangeInclusive<u64>,
    pub(crate) ends: RangeInclusive<u64>,
}

impl Membership {
    fn surely(&self) -> Range<u64> {
        *self.begins.end()..*self.ends.start()
    }

    fn perhaps(&self) -> Range<u64> {
        *self.begins.start()..*self.ends.end()
    }

    /// ns
    pub(crate) fn length(&self) -> RangeInclusive<u64> {
        let length = |range: Range<u64>| range.end - range.start;
        length(self.surely())..=length(self.perhaps())
    }
}

/// All three tools saw what a thread did while it was a target, one phase, and nothing else of it.
pub(crate) fn assert_phase(seen: &Seen, tid: u64, member: &Membership, phase: &Value) {
    let [offcputime, profile, runqlat] = &seen.reports;
    let times = Times::in_report(offcputime, &seen.logs, tid, sees_hidden());
    let worked = number(phase, "start_ns")..number(phase, "end_ns");
    let asleep = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&worked));
    assert!(asleep.count + times.lost() >= ROUNDS, "{asleep:?}");
    times.assert_inside(&asleep, |stack| stack["reason"] == "sleep");
    // Each of its own switches is an event, in profile's window, which is another one than offcputime's.
    let switches = Times::in_report(profile, &seen.logs, tid, sees_hidden());
    let left = |time: Range<u64>| switches.left(|absence| absence.begins_in(&time));
    let range = left(member.surely())..=left(member.perhaps());
    assert_within(
        format!("switches of {tid}"),
        samples(profile, tid),
        range,
        profile,
    );
    let surely = member.surely();
    // It runs when it takes another name, and sleeps when it is moved.
    let woken = |wait: &Span| !wait.was_runnable && wait.begins_in(&surely);
    assert_waits(runqlat, &seen.logs, tid, woken);
}

#[test]
fn a_process_is_all_that_is_traced() {
    let _machine = Machine::alone();
    let start = || Workload::start("spinner", "--threads 2 --seconds 0.5");
    let (mut wanted, mut other) = (start(), start());
    let pid = wanted.pid();
    let tools = Tools::start(&format!("-p {pid}"));
    wanted.go();
    other.go();
    let results = wanted.results();
    other.results();
    let [offcputime, profile, runqlat] = tools.reports().reports;
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
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(3, 1);
    let pid = workload.pid();
    let is_second = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "spinner-1")
    };
    let task = tasks(pid).into_iter().find(is_second);
    let tid = u64::from(id_of(&task.expect("the second thread")).expect("an ID"));
    let tools = Tools::start(&format!("-t {tid}"));
    workload.work();
    let Seen { reports, logs } = tools.reports();
    let [offcputime, profile, runqlat] = reports;
    workload.finish();
    for entries in [stacks(&offcputime), stacks(&profile), groups(&runqlat)] {
        assert!(!entries.is_empty());
        for entry in entries {
            assert_eq!(number(entry, "tid"), tid, "{entry}");
        }
    }
    assert_eq!(number(&offcputime, "accounting.threads"), 1);
    let times = Times::in_report(&offcputime, &logs, tid, true);
    let off = times.bracket(|_| true);
    let window = number(&offcputime, "duration_ns");
    let oncpu = number(&offcputime, "accounting.oncpu_ns");
    let unseen = number(&offcputime, "losses.out_of_order_ns");
    let bounds = window - off.most_ns..=window - off.least_ns;
    assert_within("ns on a CPU", oncpu + unseen, bounds, window);
    assert_eq!(samples(&profile, tid), times.left(|_| true));
}

fn of_command(tool: &str, options: &str, command: &[&str]) -> Value {
    let options: Vec<&str> = options.split_whitespace().collect();
    let args = [&["-j", "-q"], &options[..], &["--"], command].concat();
    Tool::run(tool, args).ok().report()
}

/// Before its exec a command is a child of the tool, which waits for its start and looks for the program.
#[test]
fn a_command_counts_from_its_exec_on() {
    let _machine = Machine::beside();
    let sleep = ["sleep", "0.05"];
    let offcputime = of_command("offcputime", "-m 0", &sleep);
    let runqlat = of_command("runqlat", "-P", &sleep);
    assert_all_called(stacks(&offcputime), "sleep");
    assert_all_called(groups(&runqlat), "sleep");
    assert_eq!(number(&offcputime, "accounting.threads"), 1);
    let asleep = stacks(&offcputime).iter();
    let asleep = asleep.filter(|stack| stack["reason"] == "sleep").count();
    assert_eq!(asleep, 1, "{offcputime:#}");

    // The call that makes the child the command is not the command's own.
    let calls = "-e tracepoint:syscalls:sys_enter_execve";
    let profile = of_command("profile", calls, &["sh", "-c", "exec /bin/true"]);
    let call = only(&profile, "stacks");
    assert_eq!((text(call, "comm"), number(call, "count")), ("sh", 1));
}

#[test]
fn a_commands_children_are_followed_through_names_that_are_not_asked_for() {
    let _machine = Machine::beside();
    let script = ["sh", "-c", "sh -c 'sleep 0.05; :'; :"];
    let offcputime = of_command("offcputime", "--comm sl?ep", &script);
    let profile = of_command("profile", "--comm sl?ep -e cs", &script);
    let runqlat = of_command("runqlat", "--comm sl?ep -P", &script);
    for found in [stacks(&offcputime), stacks(&profile), groups(&runqlat)] {
        assert_all_called(found, "sleep");
    }
    let asleep = stacks(&offcputime).iter();
    let asleep = asleep.filter(|stack| stack["reason"] == "sleep");
    assert_eq!(sum(asleep, "count"), 1);
}

#[test]
fn a_name_counts_while_a_thread_has_it() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = start_phases(dir.path(), &["before", "wanted-1", "after"]);
    let tid = u64::from(workload.pid());
    let tools = Tools::start("--comm wan[s-u]ed-?");
    phase(&mut workload);
    let named = phase(&mut workload);
    let after = phase(&mut workload);
    let seen = tools.reports();
    workload.finish();
    let renamed = |phase: &Value| number(phase, "before_ns")..=number(phase, "start_ns");
    let member = Membership {
        begins: renamed(&named),
        ends: renamed(&after),
    };
    assert_phase(&seen, tid, &member, &named);
    let [offcputime, profile, _] = &seen.reports;
    assert_all_called(&[stacks(offcputime), stacks(profile)].concat(), "wanted-1");
    let lifetime = number(offcputime, "accounting.lifetime_ns");
    assert_within("ns under that name", lifetime, member.length(), offcputime);
}

#[test]
fn a_directory_that_is_no_cgroup_is_refused_with_the_place_to_look() {
    let _machine = Machine::beside();
    for tool in ["offcputime", "profile", "runqlat"] {
        let output = Tool::run(tool, "--cgroup /tmp 1").status(1);
        let expected = format!("{tool}: cgroup /tmp: not a cgroup v2 directory; cgroup v2 is");
        assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
        let output = Tool::run(tool, "-p 4194304 1").status(1);
        let expected = format!("{tool}: no process 4194304; it may have exited (see ps -e)\n");
        assert_eq!(output.stderr, expected);
    }
}
