//! What tools of this kind have got wrong: quotas, interrupts that wake, idle tasks, composite states, new threads.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::cpu_quota::{CpuQuota, PERIOD_US};
use crate::cpu_times::stolen_of;
use crate::kernel::alone;
use crate::tool::Tool;
use crate::workload::{Workload, number};

fn start(tool: &str, args: &[&str]) -> Tool {
    let tool = Tool::start(tool, &[&["-j"], args].concat());
    tool.wait_attached();
    tool
}

fn report(tool: Tool) -> Value {
    tool.interrupt();
    let output = tool.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("JSON")
}

fn entries<'a>(report: &'a Value, list: &str) -> &'a [Value] {
    report[list].as_array().expect("a list")
}

/// Time and number of the waits of a thread that `wanted` holds for.
fn waits(report: &Value, tid: u64, wanted: impl Fn(&Value) -> bool) -> (u64, u64) {
    let own = entries(report, "stacks").iter();
    let own = own.filter(|stack| stack["tid"] == tid && wanted(stack));
    own.fold((0, 0), |(ns, count), stack| {
        let values = entries(stack, "values").iter().filter_map(Value::as_u64);
        (ns + values.sum::<u64>(), count + number(stack, "count"))
    })
}

fn near(found: u64, truth: u64, tolerance: f64, what: &str) {
    let allowed = (tolerance * truth as f64) as u64;
    assert!(
        found.abs_diff(truth) <= allowed,
        "{what}: {found}, {truth} expected"
    );
}

/// A thread without quota could run and may not: to the kernel's run delay, and to us, it waits for a CPU.
#[test]
fn time_without_quota_is_throttled_and_a_wait_for_a_cpu() {
    let Some(_machine) = alone() else {
        return;
    };
    let spinner = ["--threads", "1", "--cpu", "0", "--seconds", "2"];
    let mut workload = Workload::start("spinner", &spinner);
    let pid = workload.pid().to_string();
    let tools = [
        start("offcputime", &["-p", &pid]),
        start("runqlat", &["-L", "--preempt", "-p", &pid]),
    ];
    let quota = CpuQuota::new(workload.pid());
    workload.go();
    let results = workload.results();
    let truth = quota.throttled();
    let [offcputime, runqlat] = tools.map(report);
    drop(quota);
    let first = u64::from(workload.pid());
    workload.finish();

    let tid = number(&results[0], "tid");
    let is_throttled = |stack: &Value| stack["reason"] == "throttled";
    let (own_ns, own) = waits(&offcputime, tid, is_throttled);
    // Who waits for the spinner's end may find no quota left either.
    let (rest_ns, rest) = waits(&offcputime, first, is_throttled);
    let (throttled_ns, throttled) = (own_ns + rest_ns, own + rest);
    let (preempted_ns, _) = waits(&offcputime, tid, |stack| stack["reason"] == "preempted");
    // A quarter of the periods, had it a CPU for itself all the time.
    assert!(truth.periods >= 10, "{truth:?}");
    // What a sandbox's kernel hid the end of is a loss, with its time.
    let hidden_ns = number(&offcputime, "losses.out_of_order_ns");
    let groups = entries(&runqlat, "groups").iter();
    let own: Vec<&Value> = groups.filter(|group| group["tid"] == tid).collect();
    let waited_ns = own.iter().map(|group| number(group, "sum_ns")).sum();
    let longest_ns = own
        .iter()
        .map(|group| number(group, "max_ns"))
        .max()
        .unwrap_or(0);
    // Whoever used up more than a period's quota while its CPU was halted has none in the next ones either: one long time, which
    // the kernel counts in each.
    let longer = longest_ns / (1_000 * u64::from(PERIOD_US));
    assert!(
        (throttled..=throttled + longer + 1).contains(&truth.periods)
            || throttled == truth.periods + 1,
        "{throttled}, the longest {longest_ns} ns, {truth:?}"
    );
    // With new quota it still has to wait for its turn.
    assert!(
        (throttled_ns + hidden_ns) * 100 >= truth.ns * 98,
        "{throttled_ns}, {hidden_ns} hidden, {truth:?}"
    );
    let run_delay_ns = number(&results[0], "total.run_delay_ns");
    near(
        own_ns + preempted_ns,
        run_delay_ns,
        0.02 + hidden_ns as f64 / run_delay_ns as f64,
        &format!("off the CPU, {hidden_ns} hidden"),
    );
    // A wait whose end a sandbox's kernel hid is counted, and its time is not known.
    let unseen = number(&runqlat, "losses.unseen");
    let part = 0.02 + (unseen * longest_ns) as f64 / run_delay_ns as f64;
    near(
        waited_ns,
        run_delay_ns,
        part,
        &format!("run queue, {unseen} unseen"),
    );
}

/// The timer of a sleeper fires while another task is running on its CPU, which has nothing to do with it.
#[test]
fn an_interrupt_wakes_and_not_the_task_that_it_interrupted() {
    let Some(_machine) = alone() else {
        return;
    };
    let spinner = ["--threads", "1", "--cpu", "0", "--seconds", "1"];
    let mut spinner = Workload::start("spinner", &spinner);
    let mut sleeper = Command::new("taskset");
    sleeper
        .args(["-c", "0"])
        .arg(Workload::program("waiter"))
        .args(["--waits", "23", "--kinds", "sleep"]);
    let (mut sleeper, pid) = Workload::spawn("waiter", sleeper);
    let tool = start("offcputime", &["--waker", "-p", &pid.to_string()]);
    spinner.go();
    sleeper.go();
    let results = sleeper.results();
    let report = report(tool);
    sleeper.finish();
    spinner.results();
    spinner.finish();

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
    let (_, slept) = waits(&report, tid, asleep);
    assert_eq!(slept, number(&results[0], "slept"));
    let (_, woken) = waits(&report, tid, |stack| asleep(stack) && by_timer(stack));
    // Where a sandbox's own task was interrupted, its kernel hid the wakeup.
    let unseen = number(&report, "losses.out_of_order");
    assert!(
        (slept.saturating_sub(unseen)..=slept).contains(&woken),
        "{woken} of {slept}: {report:#}"
    );
}

/// There is one per CPU, all of them with the ID 0, and none of them waits for anything.
#[test]
fn idle_tasks_are_nobodys_threads() {
    let Some(_machine) = alone() else {
        return;
    };
    let of = |tool: &str, args: &[&str]| -> Value {
        let output = Tool::start(tool, &[&["-j", "-q"], args].concat()).finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        serde_json::from_str(&output.stdout).expect("JSON")
    };
    let offcputime = of("offcputime", &["300ms"]);
    let profile = of("profile", &["--threads", "-F", "499", "300ms"]);
    let runqlat = of("runqlat", &["-L", "300ms", "1"]);
    for found in [
        entries(&offcputime, "stacks"),
        entries(&profile, "stacks"),
        entries(&runqlat, "groups"),
    ] {
        for entry in found {
            let comm = entry["comm"].as_str().expect("a name");
            assert!(!comm.starts_with("swapper"), "{entry}");
            assert_ne!(entry["tid"], 0, "{entry}");
        }
    }
    assert!(!entries(&offcputime, "stacks").is_empty());
}

/// vfork(2) waits in the state TASK_KILLABLE, 0x102, with TASK_FREEZABLE, 0x2000, on top in newer kernels.
const VFORKER: &str = r#"
int main(void)
{
	long long asleep[23], waited = 0, awake = 0;

	ready();
	for (int i = 0; i < 23; i++) {
		const struct timespec pause = { .tv_nsec = 10000000 };
		long long start = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), queued = schedstat(1);

		if (vfork() == 0) {
			nanosleep(&pause, NULL);
			_exit(0);
		}
		queued = schedstat(1) - queued + clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
		asleep[i] = clock_ns(CLOCK_MONOTONIC) - start - queued;
		waited += asleep[i] + queued;
		awake += queued;
	}
	say("{\"waited_ns\": %lld, \"awake_ns\": %lld, \"late_ns\": %lld}\ndone\n", waited, awake, late_ns(asleep, 23));
	await_go();
	return 0;
}
"#;

#[test]
fn a_state_is_asked_for_by_its_bit_whatever_else_is_set() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "vforker", VFORKER, &[]);
    let (mut workload, pid) = Workload::spawn("vforker", Command::new(program));
    let of_state = |mask| start("offcputime", &["--state", mask, "-p", &pid.to_string()]);
    let tools = ["2", "1", "0"].map(of_state);
    workload.go();
    let results = workload.results();
    let [uninterruptible, interruptible, runnable] = tools.map(report);
    workload.finish();
    let (ns, count) = waits(&uninterruptible, pid.into(), |_| true);
    assert_eq!(count, 23, "{uninterruptible:#}");
    // It may have been driven off its CPU, on the way there or back.
    let [waited, awake, late] =
        ["waited_ns", "awake_ns", "late_ns"].map(|field| number(&results[0], field));
    let least = (waited - awake - stolen_of(late)) as f64 * 0.98;
    assert!(
        (least as u64..=waited).contains(&ns),
        "{ns} uninterruptible: {}",
        results[0]
    );
    let is_pipe = |stack: &Value| stack["reason"] == "pipe";
    for stack in entries(&interruptible, "stacks") {
        assert!(
            is_pipe(stack),
            "only for the word to begin and end: {stack}"
        );
    }
    for stack in entries(&runnable, "stacks") {
        assert_eq!(stack["reason"], "preempted", "{stack}");
    }
    // What one of them leaves out the others have.
    let all = number(&uninterruptible, "accounting.filtered") + 23;
    assert!(all >= 25, "{uninterruptible:#}");
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
	say("{\"threads\": %d}\ndone\n", count);
	await_go();
	return 0;
}
"#;

#[test]
fn a_new_threads_first_wait_counts() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "breeder", BREEDER, &["-lpthread"]);
    let (mut workload, pid) = Workload::spawn("breeder", Command::new(program));
    let tools = [
        start("runqlat", &["-L", "--wakeup", "-p", &pid.to_string()]),
        start("offcputime", &["-p", &pid.to_string()]),
    ];
    workload.go();
    let results = workload.results();
    let [runqlat, offcputime] = tools.map(report);
    workload.finish();
    let born = number(&results[0], "threads");
    assert_eq!(born, 101);
    assert_eq!(number(&offcputime, "accounting.threads"), born + 1);
    let groups = entries(&runqlat, "groups").iter();
    let tids: BTreeSet<u64> = groups.map(|group| number(group, "tid")).collect();
    let found = tids.iter().filter(|tid| **tid != u64::from(pid)).count() as u64;
    // Switches that a sandbox's kernel hides.
    let unseen = number(&runqlat, "losses.unseen");
    assert!(
        found <= born && found + unseen >= born,
        "{found}, {unseen} unseen"
    );
}
