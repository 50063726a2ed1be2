//! lockstat where waits come by the hundred thousand.

use std::collections::HashSet;

use crate::prelude::*;
use crate::soak::lost;

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
	_exit(finished());
}
"#;

/// How long the threads run.
const RUN_MS: u64 = 3_000;

#[test]
fn every_wait_of_a_storm_on_a_spinlock_is_counted_or_counted_as_lost() {
    let _machine = Machine::alone();
    let id = loader::tracefs::id("lock", "contention_begin").expect("Linux 5.19");
    let mut workload = Program::c("storm", BUCKET, "-pthread").started(format!("{RUN_MS} {id}"));
    let (output, threads) = observed("lockstat", "-K -j", &mut workload);
    workload.finish();
    let report = output.report();
    let tids: HashSet<u64> = threads.iter().map(|one| number(one, "tid")).collect();
    let begins = sum(&threads, "begins");
    let (mut waits, mut mutexes) = (0, 0);
    for lock in list(&report, "locks") {
        let is_ours = |waiter: &&Value| tids.contains(&number(waiter, "tid"));
        let count = sum(list(lock, "waiters").iter().filter(is_ours), "count");
        waits += count;
        // A wait for one of these begins up to once a part.
        if lock["class"] == "mutex" {
            mutexes += count;
        }
    }
    let lost = lost(
        &report,
        &["nested", "unended", "waiters_full", "locks_full"],
    );
    let rate = begins * 1_000 / RUN_MS;
    // Few where kernels have no paravirtual spinlocks: two CPUs at one of them are no event.
    eprintln!("{rate} a second: {lost} lost\n{}", output.stderr);
    assert_eq!(mutexes, 0, "none is asked for");
    // Its last waits are over before it reads its counter; the way to sleep is behind that.
    let bounds = begins.saturating_sub(lost)..=begins + 4 * tids.len() as u64;
    assert_within("waits", waits, bounds, format!("{begins} begins"));
}

/// Four threads, one arena, blocks too large for the threads' own caches, until they have slept 200 times.
const ALLOCATOR: &str = r#"
#include <malloc.h>
#include <pthread.h>
#define BLOCKS 64
#define SLEEPS 200
static pthread_barrier_t start;
static volatile long slept[4];
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
	long before;

	pthread_barrier_wait(&start);
	before = sleeps_so_far();
	while (!stop) {
		fill_order(blocks, &own);
		drop_order(blocks);
		slept[(long)seed - 1] = sleeps_so_far() - before;
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
	do
		nanosleep(&run, NULL);
	while (slept[0] + slept[1] + slept[2] + slept[3] < SLEEPS);
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return finished();
}
"#;

#[test]
fn an_allocators_only_arena_is_the_culprit_and_whoever_allocates_its_caller() {
    let _machine = Machine::alone();
    let mut workload = Program::c("orders", ALLOCATOR, "-pthread").started("");
    let (report, _) = reported("lockstat", "-U", &mut workload);
    workload.finish();
    let locks = list(&report, "locks");
    let first = &locks[0];
    let name = text(first, "name");
    assert!(name.starts_with("libc.so.6"), "{first:#}");
    assert!(name.ends_with(": main_arena"), "{first:#}");
    assert_eq!(first["class"], "mutex");
    assert_within("waits", number(first, "contentions"), 51.., first);
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    let of_all = share(number(first, "total_ns"), sum(locks, "total_ns"));
    assert!(of_all > 0.9, "{of_all} of {locks:#?}");
    let by = |caller: &str| -> u64 {
        let waiters = list(first, "waiters").iter();
        sum(
            waiters.filter(|waiter| waiter["caller"] == caller),
            "total_ns",
        )
    };
    let (filled_ns, dropped_ns) = (by("fill_order"), by("drop_order"));
    assert!(filled_ns > 0 && dropped_ns > 0, "{first:#}");
    let of_lock = share(filled_ns + dropped_ns, number(first, "total_ns"));
    assert!(of_lock > 0.98, "{of_lock} of {first:#}");
}
