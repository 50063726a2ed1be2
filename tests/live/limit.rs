//! `--max-overhead` of tools that count exactly: where tracing costs more they stop, say so, and have counted all until then; where
//! it does not nothing is different.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use host::clock::monotonic_ns;
use oracle::futex::waits;
use oracle::{Below, Bracket, Engine, Logs};
use serde_json::json;

use crate::args::Args;
use crate::biolatency;
use crate::budget::Pipes;
use crate::disk::{LoopDisk, fio};
use crate::held::Held;
use crate::kernel::{run_delay_ns, until_every};
use crate::lockstat_played::{named, waited};
use crate::prelude::*;
use crate::traced::assert_no_gaps;

/// A count that grows, and the times before and after it was read, ns.
struct Read {
    from_ns: u64,
    count: u64,
    until_ns: u64,
}

/// Reads a count all the time that `work` takes.
fn watched<T>(count: impl Fn() -> u64 + Sync, work: impl FnOnce() -> T) -> (Vec<Read>, T) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let read = || Read {
                from_ns: monotonic_ns(),
                count: count(),
                until_ns: monotonic_ns(),
            };
            let mut reads = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                reads.push(read());
                thread::sleep(Duration::from_millis(1));
            }
            reads.push(read());
            reads
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (watcher.join().expect("it only reads"), done)
    })
}

/// By how much the count grew in that time, ns: at least, and at most.
fn grown(reads: &[Read], report: &Value, last: &Value) -> RangeInclusive<u64> {
    let (start_ns, end_ns) = (number(report, "start_ns"), number(last, "end_ns"));
    let before = |at_ns| {
        let earlier = reads.iter().rev().find(|read| read.until_ns <= at_ns);
        earlier.unwrap_or(&reads[0]).count
    };
    let after = |at_ns| {
        let later = reads.iter().find(|read| read.from_ns >= at_ns);
        later.unwrap_or(&reads[reads.len() - 1]).count
    };
    let least = before(end_ns).saturating_sub(after(start_ns));
    least..=after(end_ns) - before(start_ns)
}

/// A tool that has a CPU as soon as it wants one: its looks at the cost are in time, however busy the machine is.
fn on_time(tool: &str, options: &str) -> Tool {
    let mut command = Command::new("chrt");
    command.args(["--fifo", "1"]).arg(crate::built(tool));
    command.args(options.words());
    let tool = Tool::spawn(tool, command);
    tool.wait_attached();
    tool
}

/// Number of a tool's probes.
fn probes(tool: &Tool) -> usize {
    let held = Held::by(tool.pid());
    held.links.len() + held.perf_events
}

/// Waits until it has taken one of all its probes away, however long a busy machine takes to use the budget up. The kernel's part in
/// the rest is done by threads that a storm would keep waiting.
fn await_stop(tool: &mut Tool, all: usize) {
    // A look takes a CPU some time.
    let every = Duration::from_millis(50);
    until_every(every, "it stops", || tool.has_ended() || probes(tool) < all);
}

/// Budgets that are large enough, and that are not.
const ENOUGH: &str = "50";
const LITTLE: &str = "0.5";
const STORMED: &str = "1";

/// It was stopped, or it was not, and has said so.
fn assert_limited(output: &Output, is_stopped: bool) {
    let reports = output.reports();
    let budget = &reports[reports.len() - 1]["cost"]["budget"];
    assert_eq!(budget["stopped"], is_stopped, "{}", output.stderr);
    let said = output.stderr.contains(": stopped after ");
    assert_eq!(said, is_stopped, "{}", output.stderr);
    if is_stopped {
        assert_eq!(output.code, 3, "it is a loss: {}", output.stderr);
    }
}

/// Its cost is its share of its length and of one second. Time of a CPU that a hypervisor takes from it is part of that, too.
fn assert_spent(output: &Output, percent: &str) {
    let reports = output.reports();
    let budget = &reports[reports.len() - 1]["cost"]["budget"];
    let cpus = thread::available_parallelism().expect("CPUs").get() as f64;
    let percent: f64 = percent.parse().expect("a number");
    let length_ns = number(budget, "elapsed_ns") as f64 + 1e9;
    let most_ns = percent / 100.0 * cpus * length_ns;
    let spent_ns = number(budget, "spent_ns") as f64;
    // Where a hypervisor takes the CPU away a look comes late.
    assert_within("ns spent", spent_ns, ..=1.2 * most_ns, budget);
}

/// Length of an interval, and how many of them the load lasts.
const INTERVAL: &str = "200ms";
const INTERVALS: usize = 15;
/// Loads after which a tool is taken not to stop.
const MOST_ROUNDS: usize = 20;

/// Reads from a disk in memory, many or few. The kernel's own account of the disk is the truth.
fn requests(percent: &str, rate: &str, is_stopped: bool) -> Output {
    let disk = LoopDisk::new(64);
    let load = "--rw=randread --bs=4k --iodepth=16 --ioengine=libaio --time_based --runtime=3";
    let name = &disk.name;
    let options = format!("-d {name} -P -j --strict --max-overhead {percent} {INTERVAL}");
    let mut tool = on_time("biolatency", &options);
    let before = disk.stat();
    let reads = || {
        let since = disk.stat().since(&before);
        let reads = since.iter().find(|(class, _)| *class == "read");
        reads.expect("reads").1.requests
    };
    let (reads, ()) = watched(reads, || {
        // A busy machine does less in that time.
        let rounds = if is_stopped { MOST_ROUNDS } else { 1 };
        for _ in 0..rounds {
            fio(&disk.path, &format!("{load} {rate}"));
            if tool.has_ended() {
                break;
            }
        }
    });
    if !tool.has_ended() {
        tool.interrupt();
    }
    let output = tool.finish();
    assert_limited(&output, is_stopped);
    let reports = output.reports();
    assert_no_gaps(&reports);
    let (first, last) = (&reports[0], &reports[reports.len() - 1]);
    let of_disk = |report| &biolatency::disk(report, name)["ops"]["read"];
    // An interval without requests has no line for the disk.
    let with_disk = reports.iter().filter(|report| report["disks"] != json!([]));
    let found = sum(with_disk.map(of_disk), "requests");
    let truth = grown(&reads, first, last);
    let least = (*truth.start()).saturating_sub(biolatency::unseen(last));
    assert_within("requests", found, least.max(1)..=*truth.end(), last);
    output
}

/// Rates at which it does and does not use its budget up.
const MANY: &str = "--rate_iops=60000";
const FEW: &str = "--rate_iops=1000";

#[test]
fn biolatency_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    requests(LITTLE, MANY, true);
}

#[test]
fn biolatency_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    requests(ENOUGH, FEW, false);
}

/// Intervals that are late are one.
#[test]
#[ignore = "statistical: make truth"]
fn biolatency_spends_no_more_than_its_budget_and_makes_every_interval() {
    let _machine = Machine::alone();
    assert_spent(&requests(LITTLE, MANY, true), LITTLE);
    let output = requests(ENOUGH, FEW, false);
    assert_spent(&output, ENOUGH);
    let count = output.reports().len();
    assert!(count >= INTERVALS, "{count} intervals");
}

/// Threads that fight for a mutex until another word comes, and note every time when they slept for it.
const FIGHT: &str = include_str!("../workloads/locks/fought.c");

/// Waits for the mutex as the tool and the threads have them.
struct Fight {
    output: Output,
    waits: Vec<Value>,
}

/// Threads that fight and account for it themselves: theirs is the truth.
fn fight(percent: &str, is_stopped: bool) -> Fight {
    let mut workload = Program::c("fight", FIGHT, "-pthread").started("");
    let pid = workload.pid();
    let options = format!("-v -U -p {pid} -j --strict --max-overhead {percent}");
    // No log has room for all events under the pipes.
    let engines = &[Engine::Scheduler, Engine::LockCalls];
    let below = (!is_stopped).then(|| Below::attach_to(engines, pid).expect("the oracle"));
    let mut tool = on_time("lockstat", &options);
    let all_probes = probes(&tool);
    let around = below.map(|below| below.around().expect("the oracle"));
    let pipes = is_stopped.then(Pipes::start);
    workload.go();
    if !is_stopped {
        thread::sleep(Duration::from_secs(3));
        tool.interrupt();
    }
    if is_stopped {
        await_stop(&mut tool, all_probes);
    }
    drop(pipes);
    let output = tool.finish();
    let logs = around.map(|around| around.take().expect("whole logs"));
    let waits = workload.work();
    workload.finish();
    assert_limited(&output, is_stopped);
    let fight = Fight { output, waits };
    fight.assert_counted(is_stopped);
    if let Some(logs) = logs {
        fight.assert_logged(&logs);
    }
    fight
}

impl Fight {
    fn report(&self) -> Value {
        self.output.report()
    }

    fn assert_counted(&self, is_stopped: bool) {
        let report = self.report();
        let end_ns = number(&report, "end_ns");
        let slept = |when: &str| {
            let waits = self.waits.iter();
            let before = waits.filter(|wait| number(wait, when) <= end_ns);
            sum(before, "sleeps")
        };
        let lock = named(list(&report, "locks"), "fought");
        let (least, most) = (slept("until_ns"), slept("from_ns"));
        // A preempted thread is no wait, though the kernel may count its switch as one.
        let unseen = number(&report, "losses.futex_unseen") + most / 50;
        let bounds = least.saturating_sub(unseen).max(1)..=most;
        let found = number(lock, "contentions");
        assert_within("waits", found, bounds, &self.output.stderr);
        let ns = number(lock, "total_ns");
        assert_within("ns", ns, ..=self.waited_ns(), lock);
        let left_out = number(&report["losses"], "stacks_left_out");
        // A hypervisor that takes a CPU away may use up all that is left between two looks.
        let does_without = self.output.stderr.contains("budget: no stacks");
        assert!(left_out == 0 || does_without, "{}", self.output.stderr);
        assert!(is_stopped || !does_without, "{}", self.output.stderr);
    }

    /// All threads', by their own clocks, until the tool ended.
    fn waited_ns(&self) -> u64 {
        let end_ns = number(&self.report(), "end_ns");
        let until = |wait| number(wait, "until_ns").min(end_ns);
        let own_ns = |wait| until(wait).saturating_sub(number(wait, "from_ns"));
        self.waits.iter().map(own_ns).sum()
    }

    /// Each thread's waits are the log's.
    fn assert_logged(&self, logs: &Logs) {
        let report = self.report();
        let locks = list(&report, "locks");
        let at = address(named(locks, "fought"));
        let tids: BTreeSet<u32> = self.waits.iter().map(|wait| id(wait, "tid")).collect();
        for tid in tids {
            let log = waits(logs, tid, number(&report, "end_ns")).expect("logs that agree");
            let fought = log.iter().filter(|wait| wait.address == at);
            let truth: Bracket = fought.map(|wait| wait.pair).collect();
            let found = waited(locks, tid.into());
            assert_bracketed(tid, found, &truth, &report["losses"]);
        }
    }
}

#[test]
fn lockstat_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    fight(STORMED, true);
}

#[test]
fn lockstat_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    fight(ENOUGH, false);
}

/// Little of what the threads measure themselves is spent on the way to sleep and back: as long as each has a CPU when it wants one.
#[test]
#[ignore = "statistical: make truth"]
fn lockstat_spends_no_more_than_its_budget_and_has_the_time_of_the_waits() {
    let _machine = Machine::alone();
    for (percent, is_stopped) in [(STORMED, true), (ENOUGH, false)] {
        let fight = fight(percent, is_stopped);
        assert_spent(&fight.output, percent);
        let report = fight.report();
        let lock = named(list(&report, "locks"), "fought");
        let least_ns = fight.waited_ns() * 8 / 10;
        assert_within("ns", number(lock, "total_ns"), least_ns.., lock);
    }
}

/// The kernel's own account of the threads is the truth.
fn spins(percent: &str, option: &str, is_stopped: bool) -> Output {
    let mut workload = Workload::spinners(4, 4);
    let pid = workload.pid();
    let options = format!("-p {pid} {option} -j --strict --max-overhead {percent}");
    let mut tool = on_time("pressure", &options);
    let all_probes = probes(&tool);
    let pipes = is_stopped.then(Pipes::start);
    let (reads, output) = watched(
        || run_delay_ns(pid),
        || {
            workload.go();
            if !is_stopped {
                thread::sleep(Duration::from_millis(3500));
                tool.interrupt();
            } else {
                await_stop(&mut tool, all_probes);
            }
            drop(pipes);
            tool.finish()
        },
    );
    workload.results();
    // The kernel adds a wait when it is over, as all are now.
    let all_ns = run_delay_ns(pid);
    workload.finish();
    assert_limited(&output, is_stopped);
    let report = output.report();
    let ended_ns = *grown(&reads, &report, &report).start();
    let unseen_ns = number(&report, "losses.unseen_ns");
    // Its clock and the tool's are not read at once.
    let slack_ns = all_ns / 100;
    let least_ns = ended_ns.saturating_sub(unseen_ns + slack_ns);
    let lost_ns = number(&report, "resources.cpu.task_ns");
    assert_within("ns lost", lost_ns, least_ns..=all_ns + slack_ns, unseen_ns);
    output
}

#[test]
fn pressure_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    spins(STORMED, "-u", true);
}

#[test]
fn pressure_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    spins(ENOUGH, "-s", false);
}

#[test]
#[ignore = "statistical: make truth"]
fn pressure_spends_no_more_than_its_budget() {
    let _machine = Machine::alone();
    assert_spent(&spins(STORMED, "-u", true), STORMED);
    assert_spent(&spins(ENOUGH, "-s", false), ENOUGH);
}
