//! why against programs that wait for a lock or at a barrier.

use std::ops::RangeInclusive;

use crate::disk::LoopDisk;
use crate::prelude::*;
use crate::why::ALL;

/// Workers ask for the lock, in one function or another, once the keeper has it, which gives it back when it has read.
const KEEPER: &str = r#"
#include <pthread.h>

#define WORKERS 3
#define ROUNDS 12
#define READS 24
#define BYTES (1 << 20)

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static int held[2], done[2], disk;
static long long lock_ns[WORKERS], disk_ns;
static int keeper_tid;

#define TAKES_THE_LOCK(function) \
	__attribute__((noinline)) static void function(long long *sum) \
	{ \
		long long begin = clock_ns(CLOCK_MONOTONIC); \
		pthread_mutex_lock(&cache_lock); \
		*sum += clock_ns(CLOCK_MONOTONIC) - begin; \
		pthread_mutex_unlock(&cache_lock); \
		WITH_FRAME; \
	}
TAKES_THE_LOCK(lookup)
TAKES_THE_LOCK(evict)

__attribute__((noinline)) static void refill(void *block, int round)
{
	long long begin = clock_ns(CLOCK_MONOTONIC);

	for (int i = 0; i < READS; i++)
		if (pread(disk, block, BYTES, (long)(round % 2 * READS + i) * BYTES) != BYTES)
			_exit(7);
	disk_ns += clock_ns(CLOCK_MONOTONIC) - begin;
	WITH_FRAME;
}

static void *work(void *sum)
{
	char c;

	while (read(held[0], &c, 1) == 1) {
		sum == &lock_ns[0] ? evict(sum) : lookup(sum);
		put_byte(done[1], '!');
	}
	return NULL;
}

static void *keep(void *unused)
{
	void *block;

	if (posix_memalign(&block, 4096, BYTES))
		_exit(7);
	keeper_tid = syscall(SYS_gettid);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&cache_lock);
		for (int i = 0; i < WORKERS; i++)
			put_byte(held[1], '?');
		refill(block, round);
		pthread_mutex_unlock(&cache_lock);
		for (int i = 0; i < WORKERS; i++)
			take_byte(done[0]);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread, keeper;
	long long sum = 0;

	/* Others on this machine are no part of the chain. */
	run_first();
	disk = open(argv[argc - 1], O_RDONLY | O_DIRECT);
	if (disk < 0 || pipe(held) || pipe(done))
		_exit(3);
	for (int i = 0; i < WORKERS; i++)
		if (pthread_create(&thread, NULL, work, &lock_ns[i]))
			_exit(3);
	ready();
	if (pthread_create(&keeper, NULL, keep, NULL) || pthread_join(keeper, NULL))
		_exit(3);
	for (int i = 0; i < WORKERS; i++)
		sum += lock_ns[i];
	say("{\"keeper\": %d, \"lock_ns\": %lld, \"evict_ns\": %lld, \"disk_ns\": %lld}\n", keeper_tid, sum, lock_ns[0], disk_ns);
	return finished();
}
"#;

/// A lock has one line, whatever function waits for it. `evict_ns`: bounds of what one of them waited.
fn assert_in_both(line: &Value, evict_ns: RangeInclusive<u64>) {
    let [lookup, evict] = list(line, "places") else {
        panic!("two functions: {line:#}")
    };
    assert_eq!(
        [lookup, evict].map(|place| text(place, "function")),
        ["lookup", "evict"]
    );
    assert_within("in evict, ns", number(evict, "ns"), evict_ns, line);
    let both = number(lookup, "ns") + number(evict, "ns");
    assert_eq!(both, number(line, "ns"), "{line:#}");
}

#[test]
fn a_wait_for_a_lock_names_it_and_its_holder() {
    let _machine = Machine::alone();
    let disk = LoopDisk::on_disk(64);
    let workload = Program::c("keeper", KEEPER, "-pthread").started(&*disk.path);
    let (report, results) = traced("why", "--max-overhead 100 100", workload);
    let told = |field| number(&results[0], field);
    let lines = list(&report, "lines").iter();
    let of_lock = lines.filter(|line| {
        let name = line["lock"]["name"].as_str();
        name.is_some_and(|name| name.ends_with("cache_lock"))
    });
    let of_lock: Vec<&Value> = of_lock.collect();
    let [line] = of_lock[..] else {
        panic!("one line of the lock: {report:#}")
    };
    assert_eq!(
        (text(line, "kind"), text(line, "place")),
        ("futex", "lookup")
    );
    // Waits end some time ready, and with some on a CPU.
    let beside: u64 = list(&report, "lines")
        .iter()
        .filter(|line| ["run-queue", "unseen", "lost", "on-cpu"].contains(&text(line, "kind")))
        .map(|line| number(line, "ns"))
        .sum();
    let bounds = told("lock_ns").saturating_sub(beside)..=told("lock_ns");
    assert_within("lock, ns", number(line, "ns"), bounds, &report);
    let evict_ns = told("evict_ns");
    assert_in_both(line, evict_ns.saturating_sub(beside)..=evict_ns);
    let lock = &line["lock"];
    assert_eq!(text(lock, "class"), "mutex");
    // offcputime's time stands where the two differ by less than 2 %.
    let ns = number(line, "ns");
    let seen = number(lock, "lockstat_ns");
    let bounds = ns - ns / 50..=told("lock_ns");
    assert_within("by lockstat, ns", seen, bounds, lock);

    let holders = list(lock, "holders");
    assert_eq!(number(&holders[0], "tid"), told("keeper"), "{lock:#}");
    let (first, all) = (number(&holders[0], "caused_ns"), sum(holders, "caused_ns"));
    assert_within("held by the keeper, ns", first, all - all / 20..=all, lock);

    let chain = &line["chain"];
    assert_eq!(text(chain, "end"), "root", "{chain:#}");
    let links = list(chain, "links");
    let last = links.last().expect("a link");
    assert_eq!(
        (links.len(), number(last, "tid")),
        (1, told("keeper")),
        "{chain:#}"
    );
    assert_eq!(
        (text(last, "kind"), text(last, "place")),
        ("block-io", "refill")
    );
    // The keeper reads all the time, but for what it computes and awaits from its workers.
    let own = last["own_share"].as_f64().expect("a share");
    assert_within("reading", own, 0.5..=1.0, chain);
}

/// Three threads come to a barrier at once, and one that computes first.
const BARRIER: &str = r#"
#include <pthread.h>

#define QUICK 3
#define ROUNDS 40

static pthread_barrier_t all_here;

/* glibc tells it whose arrival lets the others go. */
__attribute__((noinline)) static int meet(void)
{
	int is_last = pthread_barrier_wait(&all_here) == PTHREAD_BARRIER_SERIAL_THREAD;

	WITH_FRAME;
	return is_last;
}

static void *keep_up(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		meet();
	return unused;
}

static void *lag(void *unused)
{
	int last = 0;

	prctl(PR_SET_NAME, "laggard");
	for (int round = 0; round < ROUNDS; round++) {
		busy_ns(CLOCK_MONOTONIC, 10000000);
		last += meet();
	}
	say("{\"tid\": %ld, \"last\": %d}\n", syscall(SYS_gettid), last);
	return unused;
}

int main(void)
{
	pthread_t threads[QUICK + 1];

	pthread_barrier_init(&all_here, NULL, QUICK + 1);
	ready();
	for (int i = 0; i <= QUICK; i++)
		if (pthread_create(&threads[i], NULL, i ? keep_up : lag, NULL))
			_exit(3);
	for (int i = 0; i <= QUICK; i++)
		pthread_join(threads[i], NULL);
	return finished();
}
"#;

#[test]
fn a_wait_at_a_barrier_says_who_came_last() {
    let _machine = Machine::alone();
    let program = Program::c("barrier", BARRIER, "-pthread");
    let mut workload = program.start("");
    let (output, told) = observed("why", ALL, &mut workload);
    workload.finish();
    // On a busy machine another one comes later now and then.
    let (tid, last) = (number(&told[0], "tid"), number(&told[0], "last"));
    assert_within("times last", last, 20..=40, &told[0]);
    let report = output.stdout;
    let has = |part: &str| assert!(report.contains(part), "no {part:?}: {report}");
    has("was spent waiting for barrier");
    has(&format!("last to come: laggard {tid}, {last} of 40 times"));
}
