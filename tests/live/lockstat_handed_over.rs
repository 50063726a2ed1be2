//! lockstat on a mutex that goes from hand to hand as fast as two threads can sleep and wake each other.

use crate::found::unended;
use crate::prelude::*;

/// Two threads of one CPU and a mutex: the one that has it lets the other one run into it, so that each sleeps for it again
/// and again, and for nothing else. They run for as many ms as the first argument says, and until they have slept as often as a
/// second one says.
pub(crate) const HAND_OVER: &str = r#"
#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;
static long long run_ns;
static long least;

/* All threads'. */
static long all_sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

static void *hand_over(void *count)
{
	long before;

	pthread_barrier_wait(&start);
	before = sleeps_so_far();
	for (long long end = clock_ns(CLOCK_MONOTONIC) + run_ns; clock_ns(CLOCK_MONOTONIC) < end || all_sleeps() < least;) {
		pthread_mutex_lock(&lock);
		sched_yield();
		pthread_mutex_unlock(&lock);
	}
	*(long *)count = sleeps_so_far() - before;
	return NULL;
}

int main(int argc, char **argv)
{
	/* Fair scheduling takes sched_yield for a hint. */
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	pthread_t threads[2];
	cpu_set_t one;
	long counts[2];

	run_ns = atoll(argv[1]) * 1000000;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	pthread_barrier_init(&start, NULL, 3);
	for (int i = 0; i < 2; i++) {
		pthread_create(&threads[i], NULL, hand_over, &counts[i]);
		if (pthread_setaffinity_np(threads[i], sizeof(one), &one) ||
		    pthread_setschedparam(threads[i], SCHED_FIFO, &lowest))
			_exit(7);
	}
	ready();
	/* The main thread sleeps a few times, too, and each of the others before it begins. */
	least = all_sleeps() + 16 + (argc > 2 ? atol(argv[2]) : 0);
	pthread_barrier_wait(&start);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	say("{\"sleeps\": %ld}\n", counts[0] + counts[1]);
	_exit(finished());
}
"#;

/// The time for which the threads of a storm run.
const RUN_MS: u64 = 3_000;

/// The mutex of the only process that was traced.
pub(crate) fn only_lock(report: &Value) -> Value {
    let locks = list(report, "locks").iter();
    let ours: Vec<_> = locks
        .filter(|lock| lock["name"] == "hand_over.bss: lock")
        .collect();
    assert_eq!(ours.len(), 1, "{report:#}");
    ours[0].clone()
}

#[test]
fn every_wait_of_a_storm_on_a_mutex_is_counted_with_its_stack() {
    let _machine = Machine::alone();
    assert_counted(1_000);
}

/// Far beyond 100,000 a second, where the machine is not asleep itself.
#[test]
#[ignore = "statistical: make truth"]
fn every_wait_of_a_heavy_storm_on_a_mutex_is_counted_with_its_stack() {
    let _machine = Machine::alone();
    assert_counted(10_000);
}

/// All waits of a storm of more than so many are there.
fn assert_counted(most: u64) {
    let args = format!("{RUN_MS} {}", most + 1);
    let mut workload = Program::c("hand_over", HAND_OVER, "-pthread").started(args);
    let (report, results) = reported("lockstat", "", &mut workload);
    workload.finish();
    unended(&report);
    let sleeps = number(&results[0], "sleeps");
    eprintln!("{} waits a second", sleeps * 1_000 / RUN_MS);
    assert!(sleeps > most, "no storm: {sleeps} sleeps");
    let lock = only_lock(&report);
    assert_eq!(number(&lock, "contentions"), sleeps, "{lock:#}");
    let waiters = list(&lock, "waiters").iter();
    let by_caller = waiters.filter(|waiter| waiter["caller"] == "hand_over");
    assert_eq!(sum(by_caller, "count"), sleeps, "{lock:#}");
}

/// The tool is stopped while the program lives: when it looks, there is no process any more.
#[test]
fn a_lock_of_a_program_that_is_gone_has_its_name() {
    let _machine = Machine::beside();
    let program = Program::c("hand_over", HAND_OVER, "-pthread");
    let tool = Tool::attached("lockstat", "-U -j --comm hand_over");
    tool.signal(libc::SIGSTOP);
    let mut workload = program.start("20 100");
    workload.go();
    let sleeps = number(&workload.results()[0], "sleeps");
    workload.finish();
    tool.signal(libc::SIGCONT);
    tool.interrupt();
    let lock = only_lock(&tool.finish().report());
    assert_eq!(number(&lock, "contentions"), sleeps, "{lock:#}");
    assert_eq!(lock["class"], "mutex", "{lock:#}");
}
