//! Others on the same hooks: each tool twice at once, and beside perf and bpftrace. Counts are what they are alone.

use std::fs;
use std::process::Command;

use oracle::{Below, Engine, Logs};

use crate::biolatency;
use crate::disk::{LoopDisk, fio};
use crate::found::unended;
use crate::held::Held;
use crate::kernel::{skip, until};
use crate::lockstat_handed_over::{HAND_OVER, only_lock};
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::psi;
use crate::run_queue::assert_waits;

/// Calls a function of its own, and the kernel.
const CALLS: &str = r#"
__attribute__((noinline)) long hit(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}
int main(void)
{
	ready();
	for (int i = 0; i < 10007; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < 997; i++)
		hit(i);
	say("{\"getppid\": 10007, \"hit\": 997}\n");
	return finished();
}
"#;

/// Direct reads of the disk.
const READS: u64 = 503;

/// Programs that do so much of each thing, one after the other.
struct Work {
    spinners: Workload,
    handed: Workload,
    calls: Workload,
    program: Program,
    disk: LoopDisk,
    _handed: Program,
}

/// Their account of it.
struct Done {
    spinners: Vec<u64>,
    sleeps: u64,
    getppid: u64,
    hits: u64,
    requests: u64,
}

impl Work {
    fn new() -> Self {
        let program = Program::c("calls", CALLS, "");
        let handed = Program::c("hand_over", HAND_OVER, "-pthread");
        Self {
            spinners: Workload::spinners(4, 1),
            handed: handed.start("300"),
            calls: program.start(""),
            program,
            disk: LoopDisk::new(16),
            _handed: handed,
        }
    }

    /// A tool for each of these things, with its options.
    fn tools(&self) -> [(&'static str, String); 8] {
        let (spinners, calls) = (self.spinners.pid(), self.calls.pid());
        [
            ("runqlat", format!("-j -L -p {spinners}")),
            ("offcputime", format!("-j -m 0 -p {spinners}")),
            ("pressure", format!("-j -p {spinners}")),
            ("lockstat", format!("-j -U -p {}", self.handed.pid())),
            ("biolatency", format!("-j -d {}", self.disk.name)),
            ("syscount", format!("-j --strict -p {calls}")),
            (
                "profile",
                format!("-j --strict -e tracepoint:syscalls:sys_enter_getppid -p {calls}"),
            ),
            (
                "profile",
                format!(
                    "-j --strict -e uprobe:{}:hit -p {calls}",
                    self.program.text()
                ),
            ),
        ]
    }

    fn act(&mut self) -> Done {
        let before = self.disk.stat();
        let spinners = self.spinners.work();
        let handed = self.handed.work();
        let calls = self.calls.work();
        let load = format!("--rw=read --bs=4k --size={}k", 4 * READS);
        fio(&self.disk.path, &load);
        let since = self.disk.stat().since(&before);
        let reads = since.iter().find(|(class, _)| *class == "read");
        Done {
            spinners: spinners
                .iter()
                .map(|thread| number(thread, "tid"))
                .collect(),
            sleeps: number(&handed[0], "sleeps"),
            getppid: number(&calls[0], "getppid"),
            hits: number(&calls[0], "hit"),
            requests: reads.expect("reads").1.requests,
        }
    }

    /// The reports of one instance of each tool say so.
    fn assert_told(&self, reports: &[Value; 8], done: &Done, logs: &Logs) {
        let [
            runqlat,
            offcputime,
            pressure,
            lockstat,
            biolatency,
            syscount,
            calls,
            hits,
        ] = reports;
        for tid in &done.spinners {
            assert_waits(runqlat, logs, *tid, |_| true);
            let times = Times::in_report(offcputime, logs, *tid, sees_hidden());
            times.assert_inside(&times.bracket(|_| true), |_| true);
        }
        let threads = psi::threads(self.spinners.pid());
        psi::assert_waits(logs, &threads, number(pressure, "resources.cpu.task_ns"));
        unended(lockstat);
        let lock = only_lock(lockstat);
        assert_eq!(number(&lock, "contentions"), done.sleeps, "{lock:#}");
        assert!(done.requests >= READS, "{}", done.requests);
        let reads = &biolatency::disk(biolatency, &self.disk.name)["ops"]["read"];
        biolatency::is_all(biolatency, number(reads, "requests"), done.requests);
        let groups = list(syscount, "groups").iter();
        let getppid = groups.filter(|row| row["call"] == "getppid");
        assert_eq!(sum(getppid, "count"), done.getppid, "{syscount}");
        assert_eq!(number(calls, "events.samples"), done.getppid, "{calls}");
        assert_eq!(number(hits, "events.samples"), done.hits, "{hits}");
    }

    /// Runs so many of each tool over the work.
    fn assert_all_told(&mut self, instances: usize) -> Done {
        let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
        let tools: Vec<[Tool; 8]> = (0..instances)
            .map(|_| {
                // One by one: sixteen that load at once leave no CPU to those that trace.
                self.tools()
                    .map(|(tool, options)| Tool::attached(tool, options))
            })
            .collect();
        let around = below.around().expect("the oracle");
        let done = self.act();
        let reports: Vec<[Value; 8]> = tools
            .into_iter()
            .map(|tools| tools.map(Tool::report))
            .collect();
        let logs = around.take().expect("whole logs");
        for reports in &reports {
            self.assert_told(reports, &done, &logs);
        }
        done
    }
}

#[test]
fn each_tool_twice_at_once_counts_what_it_counts_alone() {
    let _machine = Machine::alone();
    Work::new().assert_all_told(2);
}

#[test]
fn beside_perf_each_tool_counts_what_it_counts_alone() {
    let _machine = Machine::alone();
    let mut work = Work::new();
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-a", "-g", "-o"]).arg(&data);
    for event in [
        "sched:sched_switch",
        "sched:sched_wakeup",
        "syscalls:sys_enter_getppid",
        "block:block_rq_complete",
        "cpu-clock",
    ] {
        command.args(["-e", event]);
    }
    let perf = Tool::spawn("perf", command);
    // More than its header.
    until("perf's first events", || {
        fs::metadata(&data).is_ok_and(|data| data.len() > 100_000)
    });
    work.assert_all_told(1);
    perf.interrupt();
    // It recorded until then.
    let code = perf.finish().code;
    assert!([0, 128 + libc::SIGINT].contains(&code), "{code}");
}

/// It counts the same things.
#[test]
#[ignore = "bpftrace is not installed for the tests: make truth"]
fn beside_bpftrace_each_tool_counts_what_it_counts_alone() {
    let _machine = Machine::alone();
    if Command::new("bpftrace").arg("--version").output().is_err() {
        return skip("no bpftrace: setup/deps bench");
    }
    let mut work = Work::new();
    let (program, pid) = (work.program.text().to_owned(), work.calls.pid());
    let script = format!(
        "tracepoint:sched:sched_switch {{ @switches = count(); }}
        tracepoint:sched:sched_wakeup {{ @wakeups = count(); }}
        tracepoint:block:block_rq_complete {{ @requests = count(); }}
        tracepoint:syscalls:sys_enter_getppid /pid == {pid}/ {{ @calls = count(); }}
        uprobe:{program}:hit /pid == {pid}/ {{ @hits = count(); }}"
    );
    let mut command = Command::new("bpftrace");
    command.args(["-e", &script]);
    let bpftrace = Tool::spawn("bpftrace", command);
    until("bpftrace's five programs", || {
        Held::by(bpftrace.pid()).programs.len() >= 5
    });
    let done = work.assert_all_told(1);
    bpftrace.interrupt();
    let said = bpftrace.finish().ok().stdout;
    for (name, count) in [("calls", done.getppid), ("hits", done.hits)] {
        let line = format!("@{name}: {count}\n");
        assert!(said.contains(&line), "no {line}: {said}");
    }
}
