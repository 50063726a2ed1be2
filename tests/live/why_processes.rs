//! why over a chain of three processes, of which each logs its part.

use crate::disk::LoopDisk;
use crate::prelude::*;
use crate::why::{ALL, kind_ns, line};

/// Workers wait for a parser's answers, it for a lock in memory that they share, whose holder sleeps, or writes to a disk until that has it.
const CHAINED: &str = r#"
#include <pthread.h>
#include <signal.h>

#define WORKERS 2
#define ROUNDS 24
#define BYTES (4 << 20)

struct shared {
	pthread_mutex_t cache_lock;
	long long asked_ns[WORKERS], ran_ns[WORKERS], lock_ns, flush_ns;
};

static struct shared *shared;
static int requests[2], wanted[2], held[2], jobs[2], done[2], answers[WORKERS][2], disk = -1;

__attribute__((noinline)) static void await_parser(int fd)
{
	take_byte(fd);
	WITH_FRAME;
}

__attribute__((noinline)) static void handle(long n)
{
	long long ran = clock_ns(CLOCK_THREAD_CPUTIME_ID), begin = clock_ns(CLOCK_MONOTONIC);

	put_byte(requests[1], n);
	await_parser(answers[n][0]);
	shared->asked_ns[n] += clock_ns(CLOCK_MONOTONIC) - begin;
	shared->ran_ns[n] += clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran;
	WITH_FRAME;
}

/* At home it waits for jobs; one that did nothing but ask would be at home in its questions. */
static void *work(void *number)
{
	char c;

	while (read(jobs[0], &c, 1) == 1) {
		handle((long)number);
		put_byte(done[1], '!');
	}
	return NULL;
}

static void give_jobs(void)
{
	for (int i = 0; i < WORKERS; i++)
		put_byte(jobs[1], '?');
	for (int i = WORKERS; i < ROUNDS; i++) {
		take_byte(done[0]);
		pause_ns(30000000);
		put_byte(jobs[1], '?');
	}
	for (int i = 0; i < WORKERS; i++)
		take_byte(done[0]);
}

__attribute__((noinline)) static void parse(void)
{
	long long begin = clock_ns(CLOCK_MONOTONIC);

	pthread_mutex_lock(&shared->cache_lock);
	shared->lock_ns += clock_ns(CLOCK_MONOTONIC) - begin;
	pthread_mutex_unlock(&shared->cache_lock);
	WITH_FRAME;
}

static void parser(void)
{
	for (;;) {
		char n = take_byte(requests[0]);

		put_byte(wanted[1], '?');
		take_byte(held[0]);
		parse();
		put_byte(answers[(int)n][1], '!');
	}
}

__attribute__((noinline)) static void flush(void *bytes)
{
	long long begin = clock_ns(CLOCK_MONOTONIC);

	if (disk < 0)
		pause_ns(40000000);
	else if (pwrite(disk, bytes, BYTES, 0) != BYTES || fdatasync(disk))
		_exit(8);
	shared->flush_ns += clock_ns(CLOCK_MONOTONIC) - begin;
	WITH_FRAME;
}

static void refill(void)
{
	/* Nobody copies them: what it takes is the disk's time. */
	void *bytes = memset(aligned_alloc(4096, BYTES), 0, BYTES);

	for (;;) {
		take_byte(wanted[0]);
		pthread_mutex_lock(&shared->cache_lock);
		put_byte(held[1], '!');
		flush(bytes);
		pthread_mutex_unlock(&shared->cache_lock);
	}
}

static int start(const char *name, void (*run)(void))
{
	int pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	run();
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_t workers[WORKERS];
	pthread_mutexattr_t attr;
	long long asked = 0, ran = 0;

	/* Others on this machine are no part of the chain. */
	run_first();
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->cache_lock, &attr);
	if (argc > 1)
		disk = open(argv[1], O_RDWR | O_DIRECT);
	if (pipe(requests) || pipe(wanted) || pipe(held) || pipe(jobs) || pipe(done))
		_exit(3);
	for (long i = 0; i < WORKERS; i++)
		if (pipe(answers[i]))
			_exit(3);
	int pids[] = { start("parser", parser), start("refill", refill) };
	ready();
	for (long i = 0; i < WORKERS; i++)
		if (pthread_create(&workers[i], NULL, work, (void *)i))
			_exit(3);
	give_jobs();
	for (int i = 0; i < WORKERS; i++) {
		asked += shared->asked_ns[i];
		ran += shared->ran_ns[i];
	}
	say("{\"parser\": %d, \"refill\": %d, \"asked_ns\": %lld, \"ran_ns\": %lld, \"lock_ns\": %lld, \"flush_ns\": %lld}\n",
	    pids[0], pids[1], asked, ran, shared->lock_ns, shared->flush_ns);
	return finished();
}
"#;

/// The one that is waited for, its doing, and the place.
fn link(link: &Value) -> (u64, &str, &str) {
    (number(link, "tid"), text(link, "kind"), text(link, "place"))
}

fn assert_chained(args: &str, root: &str) {
    let mut workload = Program::c("chained", CHAINED, "-pthread").started(args);
    let (output, results) = during("why", format!("-j --all {ALL}"), || workload.work());
    workload.finish();
    let report = output.report();
    let told = |field| number(&results[0], field);
    let wait = line(&report, "pipe", "await_parser");
    let beside: u64 = ["run-queue", "unseen", "lost"]
        .map(|kind| kind_ns(&report, kind))
        .iter()
        .sum();
    // While it asks, a worker also runs, and waits for a CPU.
    let least = told("asked_ns").saturating_sub(beside + told("ran_ns"));
    let bounds = least..=told("asked_ns");
    assert_within("asked, ns", number(wait, "ns"), bounds, wait);

    let chain = &wait["chain"];
    let links = list(chain, "links");
    assert_eq!((links.len(), text(chain, "end")), (2, "root"), "{chain:#}");
    assert_eq!(
        link(&links[0]),
        (told("parser"), "futex", "parse"),
        "{chain:#}"
    );
    assert_eq!(
        link(&links[1]),
        (told("refill"), root, "flush"),
        "{chain:#}"
    );
    for link in links {
        let share = link["share"].as_f64().expect("a share");
        assert_within("share of the waits before", share, 0.95..=1.0, chain);
    }
    // Next to all that the parser does is to wait for the lock, while workers wait.
    let window_ns = number(&report, "end_ns") - number(&report, "start_ns");
    let share = links[0]["own_share"].as_f64().expect("a share");
    let least = told("lock_ns").saturating_sub(beside) as f64 / window_ns as f64;
    assert_within(
        "share of the parser's time",
        share,
        least - 0.02..=1.0,
        chain,
    );
}

#[test]
fn a_wait_is_followed_over_three_processes_by_pipe_and_lock_to_a_sleep() {
    let _machine = Machine::alone();
    assert_chained("", "sleep");
}

#[test]
fn a_wait_is_followed_over_three_processes_by_pipe_and_lock_to_a_disk() {
    let _machine = Machine::alone();
    let disk = LoopDisk::on_disk(64);
    assert_chained(&disk.path, "block-io");
}
