//! What tools of this kind have got wrong: quotas, interrupts that wake, idle tasks, composite states, new threads.

use std::collections::BTreeSet;
use std::process::Command;

use oracle::{Below, Engine};

use crate::cgroup::Cgroup;
use crate::off_cpu::{Times, sees_hidden};
use crate::prelude::*;
use crate::run_queue::{assert_only_unseen, assert_waits};
use crate::targets::{ended, groups, stacks};

/// Number of the waits of a thread that `wanted` holds for.
fn waits(report: &Value, tid: u64, wanted: impl Fn(&Value) -> bool) -> u64 {
    let own = stacks(report).iter();
    let own = own.filter(|stack| stack["tid"] == tid && wanted(stack));
    sum(own, "count")
}

/// A thread without quota could run and may not: it waits for a CPU. Each of its times off the CPU that it had not asked for is
/// throttled or preempted, and no other is.
#[test]
fn time_without_quota_is_throttled_and_a_wait_for_a_cpu() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(1, 2);
    let pid = workload.pid();
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tools = [
        Tool::attached("offcputime", format!("-j -m 0 -p {pid}")),
        Tool::attached("runqlat", format!("-j -L --preempt -p {pid}")),
    ];
    let around = below.around().expect("the oracle");
    let quota = Cgroup::short_of_cpu(pid);
    let results = workload.work();
    let periods = quota.throttled_periods();
    let [offcputime, runqlat] = ended(tools);
    let logs = around.take().expect("whole logs");
    drop(quota);
    let first = u64::from(pid);
    workload.finish();

    let tid = number(&results[0], "tid");
    let sees_hidden = sees_hidden();
    let mut hidden = 0;
    // Whoever waits for the spinner's end may find no quota left either.
    for (tid, least) in [(tid, 1), (first, 0)] {
        let is_throttled = |stack: &Value| stack["reason"] == "throttled";
        let times = Times::in_report(&offcputime, &logs, tid, sees_hidden);
        let truth = times.bracket(|absence| absence.was_runnable);
        times.assert_inside(&truth, |stack| {
            is_throttled(stack) || stack["reason"] == "preempted"
        });
        let throttled = waits(&offcputime, tid, is_throttled);
        // A time without quota over several periods is counted in each by the kernel. What the first thread leaves of a slice when
        // it sleeps, before and after the work, ends one within its period.
        assert_within("times throttled", throttled, least..=periods + 2, periods);
        hidden += assert_waits(&runqlat, &logs, tid, |wait| wait.was_runnable);
    }
    assert_only_unseen(&runqlat, hidden);
}

/// The timer of a sleeper fires while another task is running on its CPU, which has nothing to do with it.
#[test]
fn an_interrupt_wakes_and_not_the_task_that_it_interrupted() {
    let _machine = Machine::alone();
    let spinner = Workload::spinning(1);
    let mut sleeper = Command::new("taskset");
    sleeper.args(["-c", "0"]).arg(Workload::program("waiter"));
    sleeper.args(["--waits", "23", "--kinds", "sleep"]);
    let mut sleeper = Workload::spawn("waiter", sleeper);
    let (report, results) = reported("offcputime", "--waker", &mut sleeper);
    sleeper.finish();
    drop(spinner);

    let tid = number(&results[0], "tid");
    let asleep = |stack: &Value| stack["reason"] == "sleep";
    let by_timer = |stack: &Value| {
        let waker = &stack["waker"];
        let names = |part: &str| -> Vec<&str> {
            let frames = waker[part].as_array().into_iter().flatten();
            frames.filter_map(|frame| frame["name"].as_str()).collect()
        };
        let kernel = names("kernel");
        waker["comm"].is_null()
            && names("user").is_empty()
            && kernel.iter().any(|name| name.contains("hrtimer_interrupt"))
            && kernel[0].contains("interrupt")
    };
    let slept = waits(&report, tid, asleep);
    assert_eq!(slept, number(&results[0], "slept"));
    let woken = waits(&report, tid, |stack| asleep(stack) && by_timer(stack));
    // Where a sandbox's own task was interrupted, its kernel hid the wakeup.
    let unseen = number(&report, "losses.out_of_order");
    assert_all("woken by timers", woken, unseen, slept, &report);
}

/// There is one per CPU, all of them with the ID 0, and none of them waits for anything.
#[test]
fn idle_tasks_are_nobodys_threads() {
    let _machine = Machine::alone();
    let of = |tool: &str, args: &str| Tool::run(tool, args).ok().report();
    let offcputime = of("offcputime", "-j 300ms");
    let profile = of("profile", "-j --threads -F 499 300ms");
    let runqlat = of("runqlat", "-j -L 300ms 1");
    for entry in [stacks(&offcputime), stacks(&profile), groups(&runqlat)].concat() {
        assert!(!text(&entry, "comm").starts_with("swapper"), "{entry}");
        assert_ne!(entry["tid"], 0, "{entry}");
    }
    assert!(!stacks(&offcputime).is_empty());
}

/// vfork(2) waits in the state TASK_KILLABLE, 0x102, with TASK_FREEZABLE, 0x2000, on top in newer kernels.
const VFORKER: &str = r#"
static char path[64];

/* The kernel tells the call of a thread only when it has left its CPU: whoever is late would find its child gone. */
static void await_parent(void)
{
	char first;

	do {
		pause_ns(200000);
		int call = open(path, O_RDONLY);

		if (read(call, &first, 1) != 1)
			_exit(5);
		close(call);
	} while (first == 'r');
}

int main(void)
{
	long long start;

	snprintf(path, sizeof(path), "/proc/%d/syscall", getpid());
	ready();
	start = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < 23; i++)
		if (vfork() == 0) {
			await_parent();
			pause_ns(10000000);
			_exit(0);
		}
	say("{\"start_ns\": %lld, \"end_ns\": %lld}\n", start, clock_ns(CLOCK_MONOTONIC));
	return finished();
}
"#;

#[test]
fn a_state_is_asked_for_by_its_bit_whatever_else_is_set() {
    let _machine = Machine::alone();
    let mut workload = Program::c("vforker", VFORKER, "").started("");
    let pid = workload.pid();
    let of_state = |mask| {
        let args = format!("-j -m 0 --state {mask} -p {pid}");
        Tool::attached("offcputime", args)
    };
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tools = [2, 1, 0].map(of_state);
    let around = below.around().expect("the oracle");
    let results = workload.work();
    let [uninterruptible, interruptible, runnable] = ended(tools);
    let logs = around.take().expect("whole logs");
    workload.finish();
    let times = Times::in_report(&uninterruptible, &logs, pid.into(), sees_hidden());
    let worked = number(&results[0], "start_ns")..number(&results[0], "end_ns");
    let asleep = times.bracket(|absence| !absence.was_runnable && absence.begins_in(&worked));
    assert_eq!(asleep.count, 23, "{uninterruptible:#}");
    times.assert_inside(&asleep, |_| true);
    // Only for the word to begin and end.
    for (report, reason) in [(&interruptible, "pipe"), (&runnable, "preempted")] {
        for stack in stacks(report) {
            assert_eq!(stack["reason"], reason, "{stack}");
        }
    }
    // What one of them leaves out the others have.
    let all = times.bracket(|_| true).count;
    let filtered = number(&uninterruptible, "accounting.filtered");
    assert_eq!(filtered + 23, all, "{uninterruptible:#}");
}

/// Threads that never block: all that they ever wait for is their first time on a CPU.
const BREEDER: &str = r#"
#include <pthread.h>
static void *run(void *count)
{
	__sync_fetch_and_add((int *)count, 1);
	return NULL;
}
int main(void)
{
	int count = 0;

	ready();
	for (int i = 0; i < 101; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run, &count) || pthread_join(thread, NULL))
			return 1;
	}
	say("{\"threads\": %d}\n", count);
	return finished();
}
"#;

#[test]
fn a_new_threads_first_wait_counts() {
    let _machine = Machine::alone();
    let mut workload = Program::c("breeder", BREEDER, "-lpthread").started("");
    let pid = workload.pid();
    let tools = [
        Tool::attached("runqlat", format!("-j -L --wakeup -p {pid}")),
        Tool::attached("offcputime", format!("-j -p {pid}")),
    ];
    let results = workload.work();
    let [runqlat, offcputime] = ended(tools);
    workload.finish();
    let born = number(&results[0], "threads");
    assert_eq!(born, 101);
    assert_eq!(number(&offcputime, "accounting.threads"), born + 1);
    let tids: BTreeSet<u64> = groups(&runqlat)
        .iter()
        .map(|group| number(group, "tid"))
        .collect();
    let found = tids.iter().filter(|tid| **tid != u64::from(pid)).count() as u64;
    // Switches that a sandbox's kernel hides.
    let unseen = number(&runqlat, "losses.unseen");
    assert_all("first waits", found, unseen, born, &runqlat);
}
