/* Chains through libc's code, and into it. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <sys/wait.h>
#include "chains.h"

#define ROUNDS 400

/* By pointers: the compiler knows how to do without the functions. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static size_t (*volatile length)(const char *) = strlen;

static char from[1 << 16], to[1 << 16];
static volatile int sink;

static unsigned long clock_calls = 10000;
FUNC void clock_caller(void)
{
	struct timespec now;

	for (unsigned long call = 0; call < clock_calls; call++)
		clock_gettime(CLOCK_MONOTONIC, &now);
}
/* Calls become as many as COMPUTE_NS are, as laps do in calibrate(): there are none in stolen time. */
static void calibrate_clock(void)
{
	long fastest = COMPUTE_NS;

	for (int attempt = 0; attempt < 8; attempt++) {
		long start = clock_ns(CLOCK_THREAD_CPUTIME_ID), spent;

		clock_caller();
		spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
		if (spent < fastest)
			fastest = spent;
	}
	clock_calls = (double)clock_calls * COMPUTE_NS / fastest;
}

static int compared;
FUNC int compare(const void *a, const void *b)
{
	if (!compared++)
		stop();
	return *(const int *)a - *(const int *)b;
}
FUNC void sorts(void)
{
	int values[] = { 5, 2, 4, 1, 3, 9, 8, 7 };

	qsort(values, 8, sizeof(int), compare);
	sink = values[0];
}

FUNC int finds(const void *a, const void *b) { stop(); return *(const int *)a - *(const int *)b; }
FUNC void searches(void)
{
	int values[] = { 1 };

	void *(*volatile find)(const void *, const void *, size_t, size_t, int (*)(const void *, const void *)) = bsearch;

	sink = find(&values[0], values, 1, sizeof(int), finds) != NULL;
}

FUNC void once_begin(void) { stop(); }
FUNC void only_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, once_begin);
}

FUNC int sees_object(struct dl_phdr_info *info, size_t size, void *data)
{
	if (info && size && !data)
		stop();
	return 1;
}
FUNC void iterates(void) { dl_iterate_phdr(sees_object, NULL); }

FUNC void copies(void)
{
	for (int i = 0; i < ROUNDS * 40; i++) {
		copy(to, from, sizeof(to));
		sink = to[i];
	}
}
FUNC void measures(void)
{
	for (int i = 0; i < ROUNDS * 100; i++)
		sink = length(from);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2];

FUNC void wants_the_lock(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}
static volatile int tid_beside;
FUNC void *contends(void *data) { tid_beside = gettid(); wants_the_lock(); return data; }
FUNC void reads(void) { char c; sink = read(pipes[0], &c, 1); }
FUNC void *awaits(void *data) { tid_beside = gettid(); reads(); return data; }
FUNC void sleeps(void)
{
	struct timespec pause = { .tv_nsec = SLEEP_NS };

	nanosleep(&pause, NULL);
}

/* Whether that thread sleeps, as the kernel says. */
static int is_asleep(int tid)
{
	char path[64], text[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	if (!file)
		exit(1);
	sink = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	return strstr(text, ") S ") != NULL;
}

/* Runs something in a thread, waits until it sleeps, and does what wakes it. */
static void beside(void *(*begin)(void *), void (*afterwards)(void))
{
	struct timespec pause = { .tv_nsec = SLEEP_NS };
	pthread_t thread;

	tid_beside = 0;
	if (pthread_create(&thread, NULL, begin, NULL))
		exit(1);
	while (!tid_beside || !is_asleep(tid_beside))
		nanosleep(&pause, NULL);
	afterwards();
	pthread_join(thread, NULL);
}
static void unlocks(void) { pthread_mutex_unlock(&mutex); }
static void writes(void) { sink = write(pipes[1], "", 1); }

/* Both sides of a system call that returns twice, on two stacks. */
FUNC void *nothing(void *data) { return data; }
FUNC void begins_a_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL))
		exit(1);
	pthread_join(thread, NULL);
}
FUNC void begins_a_child(void)
{
	struct timespec pause = { .tv_nsec = SLEEP_NS };
	int child = fork();

	if (child < 0)
		exit(1);
	if (!child) {
		nanosleep(&pause, NULL);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

int main(void)
{
	memset(from, 'x', sizeof(from) - 1);
	if (pipe(pipes))
		return 1;
	calibrate_clock();
	begin();
	clock_caller();
	sorts();
	searches();
	only_once();
	iterates();
	copies();
	measures();
	for (int i = 0; i < 3; i++)
		sleeps();
	for (int i = 0; i < 3; i++) {
		pthread_mutex_lock(&mutex);
		beside(contends, unlocks);
		beside(awaits, writes);
	}
	for (int i = 0; i < ROUNDS / 4; i++)
		begins_a_thread();
	for (int i = 0; i < ROUNDS / 20; i++)
		begins_a_child();
	return end();
}
