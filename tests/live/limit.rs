//! `--max-overhead` of tools that count exactly: where tracing costs more they stop, say so, and have counted all until then; where
//! it does not nothing is different.

use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use host::clock::monotonic_ns;
use serde_json::json;

use crate::args::Args;
use crate::biolatency;
use crate::budget::Pipes;
use crate::disk::{LoopDisk, fio};
use crate::kernel::{schedstat, tasks};
use crate::lockstat_played::named;
use crate::prelude::*;

/// A count that grows, and when it was read, ns.
type Read = (u64, u64);

/// Reads a count all the time that `work` takes.
fn watched<T>(count: impl Fn() -> u64 + Sync, work: impl FnOnce() -> T) -> (Vec<Read>, T) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut reads = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                reads.push((monotonic_ns(), count()));
                thread::sleep(Duration::from_millis(1));
            }
            reads.push((monotonic_ns(), count()));
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
        let earlier = reads.iter().rev().find(|(read_ns, _)| *read_ns <= at_ns);
        earlier.unwrap_or(&reads[0]).1
    };
    let after = |at_ns| {
        let later = reads.iter().find(|(read_ns, _)| *read_ns >= at_ns);
        later.unwrap_or(&reads[reads.len() - 1]).1
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

/// A tool with a budget that is large enough.
const ENOUGH: &str = "50";

/// It was stopped, or it was not, and has said so; what it spent is its share of its length and of one second.
fn assert_limited(output: &Output, percent: &str, is_stopped: bool) {
    let reports = output.reports();
    let budget = &reports[reports.len() - 1]["cost"]["budget"];
    assert_eq!(budget["stopped"], is_stopped, "{}", output.stderr);
    let said = output.stderr.contains(": stopped after ");
    assert_eq!(said, is_stopped, "{}", output.stderr);
    if is_stopped {
        assert_eq!(output.code, 3, "it is a loss: {}", output.stderr);
    }
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
fn requests(percent: &str, rate: &str, is_stopped: bool) {
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
    assert_limited(&output, percent, is_stopped);
    let reports = output.reports();
    let (first, last) = (&reports[0], &reports[reports.len() - 1]);
    let of_disk = |report| &biolatency::disk(report, name)["ops"]["read"];
    // An interval without requests has no line for the disk.
    let with_disk = reports.iter().filter(|report| report["disks"] != json!([]));
    let found = sum(with_disk.map(of_disk), "requests");
    let truth = grown(&reads, first, last);
    let least = (*truth.start()).saturating_sub(biolatency::unseen(last));
    assert_within("requests", found, least.max(1)..=*truth.end(), last);
    let count = reports.len();
    assert!(is_stopped || count >= INTERVALS, "{count} intervals");
}

#[test]
fn biolatency_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    requests("0.5", "--rate_iops=60000", true);
}

#[test]
fn biolatency_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    requests(ENOUGH, "--rate_iops=1000", false);
}

/// Threads that fight for a mutex until another word comes, and note every time when they slept for it: from, until, and how often.
const FIGHT: &str = r#"
#include <pthread.h>

#define THREADS 3
#define MOST 100000

pthread_mutex_t fought = PTHREAD_MUTEX_INITIALIZER;
static struct { long long from, until; long sleeps; } waits[THREADS][MOST];
static long count[THREADS];
static volatile int is_over;

static void *fight(void *at)
{
	long i = (long)at;

	while (!is_over && count[i] < MOST) {
		long before = sleeps_so_far();
		long long from = clock_ns(CLOCK_MONOTONIC);

		pthread_mutex_lock(&fought);
		if (sleeps_so_far() > before) {
			waits[i][count[i]].sleeps = sleeps_so_far() - before;
			waits[i][count[i]].from = from;
			waits[i][count[i]++].until = clock_ns(CLOCK_MONOTONIC);
		}
		pause_ns(400000);
		pthread_mutex_unlock(&fought);
		pause_ns(100000);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	ready();
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, fight, (void *)i);
	await_go();
	is_over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (long n = 0; n < count[i]; n++)
			say("{\"from_ns\": %lld, \"until_ns\": %lld, \"sleeps\": %ld}\n", waits[i][n].from,
			    waits[i][n].until, waits[i][n].sleeps);
	return finished();
}
"#;

/// Threads that fight and account for it themselves: theirs is the truth.
fn fights(percent: &str, is_stopped: bool) {
    let mut workload = Program::c("fight", FIGHT, "-pthread").started("");
    let pid = workload.pid();
    let options = format!("-U -p {pid} -j --strict --max-overhead {percent}");
    let tool = on_time("lockstat", &options);
    let pipes = is_stopped.then(Pipes::start);
    workload.go();
    if !is_stopped {
        thread::sleep(Duration::from_secs(3));
        tool.interrupt();
    }
    // However long a busy machine takes to use the budget up.
    let output = tool.finish();
    drop(pipes);
    let waits = workload.work();
    workload.finish();
    assert_limited(&output, percent, is_stopped);
    let report = output.report();
    let end_ns = number(&report, "end_ns");
    let slept = |when: &str| {
        let before = waits.iter().filter(|wait| number(wait, when) <= end_ns);
        sum(before, "sleeps")
    };
    let lock = named(list(&report, "locks"), "fought");
    let (least, most) = (slept("until_ns"), slept("from_ns"));
    // A preempted thread is no wait, though the kernel may count its switch as one.
    let unseen = number(&report, "losses.futex_unseen") + most / 50;
    let bounds = least.saturating_sub(unseen).max(1)..=most;
    assert_within("waits", number(lock, "contentions"), bounds, &output.stderr);
    let until = |wait| number(wait, "until_ns").min(end_ns);
    let own_ns = |wait| until(wait).saturating_sub(number(wait, "from_ns"));
    let waited_ns: u64 = waits.iter().map(own_ns).sum();
    let bounds = waited_ns * 8 / 10..=waited_ns;
    assert_within("ns", number(lock, "total_ns"), bounds, lock);
    let left_out = number(&report["losses"], "stacks_left_out");
    assert_eq!(left_out > 0, is_stopped, "{left_out} stacks left out");
}

#[test]
fn lockstat_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    fights("2", true);
}

#[test]
fn lockstat_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    fights(ENOUGH, false);
}

/// The time that threads of a process have waited for a CPU, by the kernel's account, ns.
fn run_delay_ns(pid: u32) -> u64 {
    tasks(pid).iter().map(|task| schedstat(task)[1]).sum()
}

/// The kernel's own account of the threads is the truth.
fn spins(percent: &str, option: &str, is_stopped: bool) {
    let mut workload = Workload::spinners(4, 4);
    let pid = workload.pid();
    let options = format!("-p {pid} {option} -j --strict --max-overhead {percent}");
    let tool = on_time("pressure", &options);
    let pipes = is_stopped.then(Pipes::start);
    let (reads, output) = watched(
        || run_delay_ns(pid),
        || {
            workload.go();
            if !is_stopped {
                thread::sleep(Duration::from_millis(3500));
                tool.interrupt();
            }
            tool.finish()
        },
    );
    drop(pipes);
    workload.results();
    // The kernel adds a wait when it is over, as all are now.
    let all_ns = run_delay_ns(pid);
    workload.finish();
    assert_limited(&output, percent, is_stopped);
    let report = output.report();
    let ended_ns = *grown(&reads, &report, &report).start();
    let unseen_ns = number(&report, "losses.unseen_ns");
    // Its clock and the tool's are not read at once.
    let slack_ns = all_ns / 100;
    let least_ns = ended_ns.saturating_sub(unseen_ns + slack_ns);
    let lost_ns = number(&report, "resources.cpu.task_ns");
    assert_within("ns lost", lost_ns, least_ns..=all_ns + slack_ns, unseen_ns);
}

#[test]
fn pressure_stops_when_its_budget_is_used_up_and_has_counted_all_until_then() {
    let _machine = Machine::alone();
    spins("2", "-u", true);
}

#[test]
fn pressure_within_its_budget_counts_all() {
    let _machine = Machine::alone();
    spins(ENOUGH, "-s", false);
}
