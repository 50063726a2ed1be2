//! offcputime's kernel stacks, most of which are recognised and not walked, against perf's, all of which are walked.

use std::collections::BTreeMap;

use crate::perf_dwarf::Recording;
use crate::prelude::*;

const WAITS: u64 = 40;

/// One system call that blocks in three places: what tells its stacks apart is on them only. A child wakes it, slowly, and not before
/// it sleeps: it may be late.
const READER: &str = r#"
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
int main(void)
{
	struct itimerspec soon = { .it_value.tv_nsec = 3000000 };
	struct timespec pause = { .tv_nsec = 3000000 };
	int counter = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), sockets[2];
	unsigned long long word = 1;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return 1;
	int to[] = { counter, sockets[1] }, from[] = { counter, sockets[0], timer };
	if (fork() == 0) {
		int reader = getppid();

		prctl(PR_SET_PDEATHSIG, 9);
		for (int i = 0;; i++) {
			/* The reader says that it is about to read. */
			char which;
			if (read(sockets[1], &which, 1) != 1)
				_exit(0);
			await_call(&reader, SYS_read);
			if (which == 2) {
				timerfd_settime(timer, 0, &soon, NULL);
				continue;
			}
			nanosleep(&pause, NULL);
			if (write(to[(int)which], &word, sizeof(word)) != sizeof(word))
				_exit(1);
		}
	}
	ready();
	for (int i = 0; i < 40 * 3; i++) {
		char which = i % 3;
		if (write(sockets[0], &which, 1) != 1)
			return 1;
		if (read(from[(int)which], &word, sizeof(word)) != sizeof(word))
			return 1;
	}
	say("{\"tid\": %d}\n", getpid());
	return finished();
}
"#;

/// Times that each thread blocked in each place, by thread and by stack, root first.
type Stacks = BTreeMap<(u64, Vec<String>), u64>;

#[test]
fn every_wait_has_the_kernel_stack_that_perf_sees() {
    let _machine = Machine::alone();
    let kinds = "sleep,mutex,pipe,poll,epoll,socket,wait";
    let args = format!("--waits {WAITS} --millis 5 --kinds {kinds}");
    compare(Workload::start("waiter", args), 7);
}

#[test]
fn one_system_call_that_blocks_in_many_places_has_many_kernel_stacks() {
    let _machine = Machine::alone();
    compare(Program::c("reader", READER, "").start(""), 3);
}

/// Number of times that a thread must have been blocked in a place for it to be compared: as often as it knows, WAITS times if it does not. A
/// timer may be over before the thread sleeps.
fn least(thread: &Value) -> (u64, u64) {
    let slept = thread["slept"].as_u64().unwrap_or(WAITS);
    assert!(slept >= WAITS / 2, "{thread}");
    (number(thread, "tid"), slept)
}

/// Traces a workload with both; `places` is how many stacks must have been blocked in at every wait.
fn compare(mut workload: Workload, places: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let pid = workload.pid();
    let switches = format!("-e sched:sched_switch -g -p {pid}");
    let mut perf = Recording::prepare_with(dir.path(), pid, &switches);
    let (output, results) = during("offcputime", format!("-j -p {pid}"), || {
        perf.begin();
        let results = workload.work();
        perf.order("disable");
        results
    });
    let report = output.report();
    workload.finish();

    let theirs = of_perf(&perf.script(&["-F", "tid,ip,sym"]));
    let ours = of_report(&report);
    let least: BTreeMap<u64, u64> = results.iter().map(least).collect();
    let mut compared = 0;
    for ((tid, stack), count) in &ours {
        if least.get(tid).is_none_or(|least| count < least) {
            continue;
        }
        let found = theirs.get(&(*tid, stack.clone())).copied().unwrap_or(0);
        assert_eq!(*count, found, "{tid}: {stack:?}, perf: {theirs:?}");
        compared += 1;
    }
    // Switches on the way out of the kernel may be as many.
    assert!(compared >= places, "{ours:?}");
}

/// The kernel leaves the scheduler's own functions out when it walks a stack from outside, as it does for nearly all of ours:
/// without them on either side.
fn without_scheduler(mut frames: Vec<String>) -> Vec<String> {
    while frames.pop_if(|frame| is_scheduler(frame)).is_some() {}
    frames
}

/// Functions of the kernel's __sched section that these waits pass through.
fn is_scheduler(function: &str) -> bool {
    function.contains("schedule")
        || ["do_nanosleep", "__traceiter_sched_switch"].contains(&function)
}

fn of_report(report: &Value) -> Stacks {
    let mut stacks = Stacks::new();
    for stack in list(report, "stacks") {
        let frames = list(stack, "kernel").iter();
        let names = frames.map(|frame| text(frame, "name").to_owned());
        *stacks
            .entry((number(stack, "tid"), without_scheduler(names.collect())))
            .or_default() += number(stack, "count");
    }
    stacks
}

fn of_perf(text: &str) -> Stacks {
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
        *stacks.entry((tid, without_scheduler(frames))).or_default() += 1;
    }
    stacks
}
