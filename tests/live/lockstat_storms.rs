//! lockstat where waits come by the hundred thousand.

use std::collections::HashSet;

use crate::c_program::compile;
use crate::kernel::{alone, skip};
use crate::tool::Tool;
use crate::workload::{Workload, number};

/// Threads that look through the sleepers on one futex, in vain, with the lock of its hash bucket held. Each has a counter of
/// its own on contention_begin, the event whose number is the second argument; they run for as many ms as the first says.
const BUCKET: &str = r#"
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sys/ioctl.h>
#define THREADS 4
#define SLEEPERS 60
static unsigned int word;
static long long run_ns;
static int event;
static volatile pid_t tids[THREADS];
static long long begins[THREADS];
static volatile int done;
static pthread_barrier_t start;

static int open_counter(void)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .type = PERF_TYPE_TRACEPOINT, .config = event };

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static void *sleep_on(void *unused)
{
	for (;;)
		syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 1);
	return unused;
}

static void *work(void *which)
{
	int counter = open_counter();

	if (counter < 0)
		_exit(7);
	tids[(long)which] = syscall(SYS_gettid);
	pthread_barrier_wait(&start);
	ioctl(counter, PERF_EVENT_IOC_RESET, 0);
	for (long long end = clock_ns(CLOCK_MONOTONIC) + run_ns; clock_ns(CLOCK_MONOTONIC) < end;)
		for (int i = 0; i < 100; i++)
			syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 2);
	if (read(counter, &begins[(long)which], sizeof(long long)) != sizeof(long long))
		_exit(8);
	__atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	pthread_t thread;

	run_ns = atoll(argv[1]) * 1000000;
	event = atoi(argv[2]);
	pthread_barrier_init(&start, NULL, THREADS + 1);
	for (int i = 0; i < SLEEPERS; i++)
		pthread_create(&thread, NULL, sleep_on, NULL);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		while (!tids[i])
			usleep(1000);
	ready();
	pthread_barrier_wait(&start);
	while (done < THREADS)
		usleep(1000);
	for (int i = 0; i < THREADS; i++)
		say("{\"tid\": %d, \"begins\": %lld}\n", tids[i], begins[i]);
	say("done\n");
	await_go();
	_exit(0);
}
"#;

/// How long the threads run.
const RUN_MS: u64 = 3_000;

#[test]
fn every_wait_of_a_storm_on_a_spinlock_is_counted_or_counted_as_lost() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let id = loader::tracefs::id("lock", "contention_begin").expect("Linux 5.19");
    let program = compile(dir.path(), "storm", BUCKET, &["-pthread"]);
    let mut command = std::process::Command::new(program);
    command.args([RUN_MS.to_string(), id.to_string()]);
    let (mut workload, pid) = Workload::spawn("storm", command);
    let tool = Tool::start("lockstat", &["-K", "-j", "-p", &pid.to_string()]);
    tool.wait_attached();
    workload.go();
    let threads = workload.results();
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report = output.report();
    let tids: HashSet<u64> = threads.iter().map(|one| number(one, "tid")).collect();
    let begins: u64 = threads.iter().map(|one| number(one, "begins")).sum();
    let (mut waits, mut mutexes) = (0, 0);
    for lock in report["locks"].as_array().expect("a list") {
        let waiters = lock["waiters"].as_array().expect("a list").iter();
        let ours = waiters.filter(|waiter| tids.contains(&number(waiter, "tid")));
        let count: u64 = ours.map(|waiter| number(waiter, "count")).sum();
        waits += count;
        // A wait for one of these begins up to once a part.
        if lock["class"] == "mutex" {
            mutexes += count;
        }
    }
    let losses = |key: &str| number(&report, &format!("losses.{key}"));
    let lost = losses("nested") + losses("unended") + losses("waiters_full") + losses("locks_full");
    let rate = begins * 1_000 / RUN_MS;
    eprintln!(
        "{rate} a second: {waits} waits of {begins}, {lost} lost, {mutexes} for mutexes\n{}",
        output.stderr
    );
    if begins < 10_000 {
        skip("two CPUs at one spinlock say nothing here: no paravirtual spinlocks");
        return;
    }
    assert_eq!(mutexes, 0, "none is asked for");
    // Its last waits are over before it reads its counter; the way to sleep is behind that.
    assert!(
        waits + lost >= begins,
        "{waits} waits of {begins}, {lost} lost"
    );
    assert!(
        waits <= begins + 4 * tids.len() as u64,
        "{waits} waits of {begins}"
    );
}

/// Four threads, one arena, blocks too large for the threads' own caches.
const ALLOCATOR: &str = r#"
#include <malloc.h>
#include <pthread.h>
#define BLOCKS 64
static pthread_barrier_t start;
static volatile int stop;

__attribute__((noinline)) static void fill_order(void **blocks, unsigned long *seed)
{
	for (int i = 0; i < BLOCKS; i++) {
		*seed = *seed * 6364136223846793005UL + 1442695040888963407UL;
		blocks[i] = malloc(1100 + (*seed >> 33) % 20000);
		*(char *)blocks[i] = i;
	}
	WITH_FRAME;
}

__attribute__((noinline)) static void drop_order(void **blocks)
{
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	WITH_FRAME;
}

static void *work(void *seed)
{
	unsigned long own = (long)seed;
	void *blocks[BLOCKS];

	pthread_barrier_wait(&start);
	while (!stop) {
		fill_order(blocks, &own);
		drop_order(blocks);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec run = { .tv_sec = 2 };
	pthread_t threads[4];

	mallopt(M_ARENA_MAX, 1);
	pthread_barrier_init(&start, NULL, 5);
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	ready();
	pthread_barrier_wait(&start);
	nanosleep(&run, NULL);
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	say("done\n");
	await_go();
	return 0;
}
"#;

#[test]
fn an_allocators_only_arena_is_the_culprit_and_whoever_allocates_its_caller() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "orders", ALLOCATOR, &["-pthread"]);
    let (mut workload, pid) = Workload::spawn("orders", std::process::Command::new(program));
    let tool = Tool::start("lockstat", &["-U", "-j", "-p", &pid.to_string()]);
    tool.wait_attached();
    workload.go();
    workload.results();
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    let report = output.report();
    let locks = report["locks"].as_array().expect("a list");
    let all_ns: u64 = locks.iter().map(|lock| number(lock, "total_ns")).sum();
    let first = &locks[0];
    eprintln!(
        "{} {} {} waits",
        first["name"], first["caller"], first["contentions"]
    );
    let name = first["name"].as_str().expect("text");
    assert!(
        name.starts_with("libc.so.6") && name.ends_with(": main_arena"),
        "{first:#}"
    );
    assert_eq!(first["class"], "mutex");
    assert!(number(first, "contentions") > 50, "{}", output.stderr);
    assert!(
        number(first, "total_ns") as f64 > 0.9 * all_ns as f64,
        "{locks:#?}"
    );
    let waiters = first["waiters"].as_array().expect("a list");
    let by = |caller: &str| -> u64 {
        let ours = waiters.iter().filter(|waiter| waiter["caller"] == caller);
        ours.map(|waiter| number(waiter, "total_ns")).sum()
    };
    let (filled_ns, dropped_ns) = (by("fill_order"), by("drop_order"));
    assert!(filled_ns > 0 && dropped_ns > 0, "{first:#}");
    assert!(
        (filled_ns + dropped_ns) as f64 > 0.98 * number(first, "total_ns") as f64,
        "{first:#}"
    );
}
