//! Tools that the machine does not run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::kernel::{has_tracepoint, schedstat, states, tasks, until};
use crate::prelude::*;
use crate::tool::TRACERS;

/// Of a thread's `stat`, behind its name: number of fields before its real-time priority.
const PRIORITY: usize = 37;
const HIGHEST: &str = "99";

/// Path of the guard's directory in /proc.
fn guard_of(tool: &Tool) -> PathBuf {
    let is_guard =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == "guard\n");
    tasks(tool.pid())
        .into_iter()
        .find(is_guard)
        .expect("a guard")
}

fn await_looks(guard: &Path) {
    let before = schedstat(guard)[2];
    until("the guard looks", || schedstat(guard)[2] >= before + 2);
}

#[test]
fn time_without_a_cpu_is_said() {
    let _machine = Machine::alone();
    let tool = Tool::attached("runqlat", "-j --strict");
    let guard = guard_of(&tool);
    await_looks(&guard);
    let before_stop = Instant::now();
    tool.signal(libc::SIGSTOP);
    let stopped = Instant::now();
    std::thread::sleep(Duration::from_millis(1_600));
    let at_least = stopped.elapsed();
    tool.signal(libc::SIGCONT);
    await_looks(&guard);
    let at_most = before_stop.elapsed();
    tool.interrupt();
    let output = tool.finish().status(3);
    output.assert_says("runqlat: the machine did not run this tool for ");
    let starved_ns = number(&output.report(), "cost.starved_ns");
    // It looks every 100 ms, and may just have looked when it was stopped, or been about to.
    let period = Duration::from_millis(100);
    let starved = Duration::from_nanos(starved_ns);
    assert_within("starved", starved, at_least - period..at_most, "stopped");
}

#[test]
fn every_tool_has_a_guard_before_all_others() {
    let _machine = Machine::alone();
    for name in TRACERS.iter().copied() {
        let tool = Tool::attached(name, "");
        let stat = fs::read_to_string(guard_of(&tool).join("stat")).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        assert_eq!(fields.split(' ').nth(PRIORITY), Some(HIGHEST), "{name}");
        tool.end();
    }
}

/// A hypervisor that takes the CPUs away is right to be told of.
#[test]
#[ignore = "statistical: make truth"]
fn no_tool_is_said_to_be_without_a_cpu_where_it_has_one() {
    let _machine = Machine::alone();
    for name in TRACERS.iter().copied() {
        let (output, ()) = during(name, "", || ());
        assert!(!output.stderr.contains("did not run"), "{}", output.stderr);
    }
}

const WINDOW: Duration = Duration::from_secs(1);

/// Stops a tool as soon as its window is open, and calls `meanwhile` when it is over. What it prints then.
fn stopped_beyond_its_window(tool: &Tool, meanwhile: impl FnOnce()) {
    tool.wait_attached();
    tool.signal(libc::SIGSTOP);
    std::thread::sleep(WINDOW);
    meanwhile();
    tool.signal(libc::SIGCONT);
}

fn assert_closed_by_the_clock(report: &Value) {
    let length = number(report, "end_ns") - number(report, "start_ns");
    assert_eq!(Duration::from_nanos(length), WINDOW);
}

#[test]
fn windows_of_stopped_tools_have_their_length() {
    let _machine = Machine::alone();
    for name in ["profile", "lockstat"] {
        let tool = Tool::start(name, "-j 1");
        stopped_beyond_its_window(&tool, || ());
        assert_closed_by_the_clock(&tool.finish().ok().report());
    }
}

#[test]
fn a_window_closes_by_the_clock_though_the_tool_is_stopped() {
    let _machine = Machine::alone();
    // Waits for a line, then for what never comes.
    let mut waiter = Command::new("sh")
        .args(["-c", "read line; exec sleep 1000"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    let pid = waiter.id();
    let is_in = |what: &str| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs");
        comm.trim() == what && states(pid) == ['S']
    };
    until("the shell reads", || is_in("sh"));
    let tool = Tool::start("offcputime", format!("-j -p {pid} 1"));
    stopped_beyond_its_window(&tool, || {
        let mut line = waiter.stdin.take().expect("a pipe");
        line.write_all(b"line\n").expect("it reads");
        until("the shell sleeps", || is_in("sleep"));
    });
    let output = tool.finish();
    waiter.kill().expect("it runs");
    waiter.wait().expect("our child");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report = output.report();
    let window_ns = u64::try_from(WINDOW.as_nanos()).expect("a second");
    assert_eq!(report["duration_ns"], window_ns);
    let accounting = &report["accounting"];
    assert_eq!(accounting["blocked_ns"], window_ns, "{accounting}");
    assert_eq!(accounting["lifetime_ns"], window_ns, "{accounting}");
    assert_eq!(accounting["open_at_end"], 1, "{accounting}");
    let wait = only(&report, "stacks");
    assert_eq!(wait["comm"], "sh");
    assert_eq!(wait["reason"], "pipe");
    // Where it says itself that it goes on, it walks its own stack.
    if has_tracepoint("sched_exit_tp") {
        let user = list(wait, "user");
        let leaf = user.last().expect("a frame")["name"].as_str();
        assert!(leaf.is_some_and(|name| name.contains("read")), "{wait}");
    }
}

#[test]
fn who_waits_for_a_cpu_at_the_end_is_named_though_the_tool_is_stopped() {
    let _machine = Machine::alone();
    let mut spinners = Workload::spinners(2, 1000);
    spinners.go();
    let args = format!("-j -p {} 1 1", spinners.pid());
    let tool = Tool::start("runqlat", args);
    stopped_beyond_its_window(&tool, || ());
    let output = tool.finish().ok();
    let report = output.report();
    assert_closed_by_the_clock(&report);
    // One runs and one waits, or both wait for somebody else.
    let waiting = list(&report, "still_waiting").len();
    assert_within("waiting", waiting, 1..=2, &report);
}
