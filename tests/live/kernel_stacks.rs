//! offcputime's kernel stacks, most of which are recognised and not walked, against perf's, all of which are walked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::kernel::{alone, require_live};
use crate::tool::Tool;
use crate::workload::{Workload, number};

const WAITS: usize = 40;

/// Times that each thread blocked in each place, by thread and by stack, root first.
type Stacks = BTreeMap<(u64, Vec<String>), u64>;

#[test]
fn every_wait_has_the_kernel_stack_that_perf_sees() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("perf.data");
    let kinds = "sleep,mutex,pipe,poll,epoll,socket,wait";
    let waits = WAITS.to_string();
    let mut workload = Workload::start(
        "waiter",
        &["--waits", &waits, "--millis", "5", "--kinds", kinds],
    );
    let pid = workload.pid().to_string();
    let tool = Tool::start("offcputime", &["-j", "-p", &pid]);
    tool.wait_attached();
    let perf = Perf::start(&pid, &data);
    workload.go();
    let results = workload.results();
    perf.finish();
    tool.interrupt();
    let report: Value = serde_json::from_str(&tool.finish().stdout).expect("JSON");
    workload.finish();

    let (ours, theirs) = (of_report(&report), of_perf(&data));
    assert_eq!(results.len(), 7, "{results:?}");
    for thread in &results {
        let tid = number(thread, "tid");
        let (stack, count) = most_frequent(&ours, tid);
        assert!(count >= WAITS as u64, "{thread}: {count} times {stack:?}");
        // The kernel leaves the scheduler's own functions out when it walks a stack from outside.
        let same = theirs.iter().filter(|((other, frames), _)| {
            let (common, rest) = frames.split_at(stack.len().min(frames.len()));
            *other == tid && common == stack && rest.iter().all(|frame| is_scheduler(frame))
        });
        let found: u64 = same.map(|(_, count)| count).sum();
        assert_eq!(count, found, "{thread}: {stack:?}, perf: {theirs:?}");
    }
}

fn most_frequent(stacks: &Stacks, tid: u64) -> (&[String], u64) {
    let own = stacks.iter().filter(|((other, _), _)| *other == tid);
    let ((_, stack), count) = own.max_by_key(|(_, count)| **count).expect("it waited");
    (stack, *count)
}

/// Functions of the kernel's __sched section that these waits pass through.
fn is_scheduler(function: &str) -> bool {
    function.contains("schedule")
        || ["do_nanosleep", "__traceiter_sched_switch"].contains(&function)
}

fn of_report(report: &Value) -> Stacks {
    let mut stacks = Stacks::new();
    for stack in report["stacks"].as_array().expect("stacks") {
        let frames = stack["kernel"].as_array().expect("frames").iter();
        let names = frames.map(|frame| frame["name"].as_str().expect("a name").to_owned());
        *stacks
            .entry((number(stack, "tid"), names.collect()))
            .or_default() += number(stack, "count");
    }
    stacks
}

fn of_perf(data: &std::path::Path) -> Stacks {
    let script = Command::new("perf")
        .args(["script", "-F", "tid,ip,sym", "-i"])
        .arg(data)
        .stderr(Stdio::null())
        .output()
        .expect("perf runs");
    let text = String::from_utf8_lossy(&script.stdout).into_owned();
    let mut stacks = Stacks::new();
    for event in text.split("\n\n") {
        let mut lines = event.lines().filter(|line| !line.trim().is_empty());
        let Some(tid) = lines.next().and_then(|line| line.trim().parse().ok()) else {
            continue;
        };
        let mut frames: Vec<String> = lines
            .filter_map(|line| line.trim().split_once(' '))
            .filter(|(address, _)| address.starts_with("ffff"))
            .map(|(_, function)| function.trim().to_owned())
            .collect();
        frames.reverse();
        *stacks.entry((tid, frames)).or_default() += 1;
    }
    stacks
}

struct Perf(Child);

impl Perf {
    /// Starts recording, and waits until it does.
    fn start(pid: &str, data: &std::path::Path) -> Self {
        let dir = data.parent().expect("a directory");
        let (control, ack) = (dir.join("control"), dir.join("ack"));
        for fifo in [&control, &ack] {
            let made = Command::new("mkfifo").arg(fifo).status();
            assert!(made.expect("mkfifo runs").success());
        }
        let fifos = format!("fifo:{},{}", control.display(), ack.display());
        let child = Command::new("perf")
            .args(["record", "-q", "-e", "sched:sched_switch", "-g", "-p", pid])
            .args(["-D", "-1", "--control", &fifos, "-o"])
            .arg(data)
            .stderr(Stdio::null())
            .spawn()
            .expect("perf runs");
        std::fs::write(&control, "enable\n").expect("perf listens");
        let mut said = String::new();
        let answer = File::open(&ack).expect("perf answers");
        BufReader::new(answer).read_line(&mut said).expect("a line");
        assert!(said.contains("ack"), "{said}");
        Self(child)
    }

    fn finish(mut self) {
        let pid = i32::try_from(self.0.id()).expect("a PID");
        // SAFETY: sends a signal to a child that is not reaped yet.
        unsafe { libc::kill(pid, libc::SIGINT) };
        self.0.wait().expect("perf ends");
    }
}
