//! `--max-overhead`: what tools cost while the machine does nothing but switch, and how true their estimates are.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::kernel::{id_of, tasks};
use crate::prelude::*;

pub(crate) const PERCENT: f64 = 2.0;

/// `perf bench sched pipe` on every CPU: hundreds of thousands of switches a second. Dropping it ends it.
pub(crate) struct Pipes(Vec<Child>);

impl Pipes {
    pub(crate) fn start() -> Self {
        let cpus = fs::read_to_string("/sys/devices/system/cpu/online").expect("sysfs");
        let (first, last) = cpus.trim().split_once('-').unwrap_or(("0", "0"));
        let range = first.parse::<u32>().expect("a CPU")..=last.parse().expect("a CPU");
        Self(range.map(Self::on).collect())
    }

    fn on(cpu: u32) -> Child {
        // Both ends of the pipe end where the tests are killed, too: with the first process of their namespace.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--kill-child"]);
        command.args(["taskset", "-c", &cpu.to_string()]);
        command.args(["perf", "bench", "sched", "pipe", "-l", "50000000"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
        command.spawn().expect("util-linux is installed")
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both ends of the pipe: perf forks.
            let group = libc::pid_t::try_from(child.id()).expect("process ids fit");
            // SAFETY: our child, not yet waited for, leads the group.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            child.wait().expect("our own child");
        }
    }
}

/// CPU time that the kernel has charged to a tool and its BPF programs so far, ns. Iterators run in the tool's own time.
fn charged_ns(tool: &Tool) -> u64 {
    own_ns(tool.pid()) + programs_ns(tool.pid())
}

fn own_ns(pid: u32) -> u64 {
    let pid = libc::pid_t::try_from(pid).expect("process ids fit");
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: both are valid to write to.
    let rc = unsafe {
        match libc::clock_getcpuclockid(pid, &raw mut clock) {
            0 => libc::clock_gettime(clock, &raw mut time),
            error => error,
        }
    };
    assert_eq!(rc, 0, "the tool runs");
    let [seconds, ns] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).expect("positive"));
    seconds * 1_000_000_000 + ns
}

fn programs_ns(pid: u32) -> u64 {
    let dir = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the tool runs");
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let run_time = |text: String| {
        text.contains("prog_type:")
            .then(|| field(&text, "run_time_ns:").unwrap_or(0))
    };
    dir.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter_map(run_time)
        .sum()
}

/// Runs `tool` with a budget over the work of `workload` under the pipes; asserts what the kernel says that it cost.
fn within_budget(tool: &str, options: &str, workload: &mut Workload) -> (Output, Vec<Value>) {
    held(tool, options, PERCENT, || {
        // Once the tool is at work: to load it takes kernel threads, which the storm may keep waiting for a minute.
        let _pipes = Pipes::start();
        workload.work()
    })
}

/// The same with any budget, over any work.
pub(crate) fn held<T>(
    tool: &str,
    options: &str,
    percent: f64,
    work: impl FnOnce() -> T,
) -> (Output, T) {
    let all = format!("--max-overhead {percent} -j {options}");
    let tool = Tool::attached(tool, all);
    let (began, before_ns) = (Instant::now(), charged_ns(&tool));
    let results = work();
    let spent_ns = charged_ns(&tool) - before_ns;
    let elapsed_ns = began.elapsed().as_nanos() as f64;
    let output = tool.end();

    let cpus = std::thread::available_parallelism().expect("CPUs").get() as f64;
    let cost = 100.0 * spent_ns as f64 / (elapsed_ns * cpus);
    assert_within("% of the CPUs", cost, ..=percent, &output.stderr);
    let reports = output.reports();
    let said = &reports[reports.len() - 1]["cost"]["budget"];
    let said_percent = said["spent_percent"].as_f64().expect("what it cost");
    assert!(said_percent > 0.0, "{said}");
    assert_within(
        "% by its own account",
        said_percent,
        ..=1.05 * percent,
        said,
    );
    (output, results)
}

/// The truth lies inside the stated interval, widened from 95 to more than 99 %.
pub(crate) fn assert_inside(estimate: &Value, truth: u64, what: &str) {
    let [total, margin] = ["total", "margin_95"].map(|field| estimate[field].as_f64());
    let (total, margin) = total.zip(margin).expect("two numbers");
    let off = (total - truth as f64).abs();
    let most = 1.5 * margin + 0.001 * truth as f64;
    assert_within(
        format!("{what}: off by"),
        off,
        ..=most,
        format!("{estimate}, in truth {truth}"),
    );
    assert!(margin < 0.5 * total, "{what}: {estimate} says nothing");
}

fn spinners() -> Workload {
    Workload::spinners(4, 8)
}

#[test]
#[ignore = "statistical: make truth"]
fn offcputime_under_a_storm_of_switches_keeps_its_budget_and_tells_the_truth() {
    let _machine = Machine::alone();
    let mut workload = spinners();
    let options = format!("-p {}", workload.pid());
    let (output, results) = within_budget("offcputime", &options, &mut workload);
    let report = output.report();
    let estimates = &report["estimates"];
    let oncpu = sum(&results, "total.oncpu_ns");
    assert_inside(&estimates["oncpu"], oncpu, "on CPU");
    let waited = sum(&results, "total.run_delay_ns");
    assert_inside(&estimates["runqueue"], waited, "run queue");
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn runqlat_under_a_storm_of_switches_keeps_its_budget_and_tells_the_truth() {
    let _machine = Machine::alone();
    let mut workload = spinners();
    let options = format!("-p {}", workload.pid());
    let (output, results) = within_budget("runqlat", &options, &mut workload);
    let report = output.report();
    let waited = sum(&results, "total.run_delay_ns");
    assert_inside(&report["estimates"]["sum_ns"], waited, "time waited");
    workload.finish();
}

/// Threads that do nothing, by their number if that comes last, else four thousand, and one that waits.
pub(crate) const SLEEPERS: &str = r#"
#include <pthread.h>

static void *rest(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[argc - 1]) : 4000;
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, &small, rest, NULL))
			_exit(3);
	ready();
	say("{}\n");
	return finished();
}
"#;

/// Edges of windows that cost more than all there is: thousands of threads to look at.
#[test]
fn a_collection_that_cannot_keep_its_budget_stops_with_what_it_has() {
    let _machine = Machine::alone();
    let mut workload = Program::c("sleepers", SLEEPERS, "-pthread").started("");
    let tool = Tool::attached("offcputime", "--max-overhead 0.1 -j 600");
    let _pipes = Pipes::start();
    let output = tool.finish().ok();
    output.assert_says("stopped, because");
    let report = output.report();
    let seconds = number(&report, "duration_ns") / 1_000_000_000;
    assert_within("seconds", seconds, 10..100, &output.stderr);
    let budget = &report["cost"]["budget"];
    assert_eq!(budget["stopped"], true, "{budget}");
    workload.go();
    workload.finish();
}

/// Waits that last all the time are in every window: of threads that nobody wakes, however late others have a CPU.
#[test]
fn a_thread_that_sleeps_throughout_is_exact_however_little_is_looked() {
    let _machine = Machine::alone();
    let (sleepers, mut storm) = (Workload::start("asleep", ""), spinners());
    let options = format!("-p {} --state 1", sleepers.pid());
    let tool = Tool::attached(
        "offcputime",
        format!("--max-overhead {PERCENT} -j {options}"),
    );
    let pipes = Pipes::start();
    storm.work();
    drop(pipes);
    let report = tool.report();
    assert!(number(&report, "cost.budget.spent_ns") > 0, "{report}");
    let window = number(&report, "duration_ns");
    for tid in tasks(sleepers.pid()).iter().filter_map(|task| id_of(task)) {
        let stacks = list(&report, "stacks").iter();
        let asleep = sum(stacks.filter(|stack| stack["tid"] == tid), "values.0");
        assert_within("ns apart", asleep.abs_diff(window), ..=window / 50, asleep);
    }
    storm.finish();
    sleepers.finish();
}

/// The same run's cost, which the kernel says.
#[test]
#[ignore = "statistical: make truth"]
fn offcputime_of_threads_that_sleep_throughout_keeps_its_budget() {
    let _machine = Machine::alone();
    let mut workload = spinners();
    let options = format!("-p {} --state 1", workload.pid());
    within_budget("offcputime", &options, &mut workload);
    workload.finish();
}
