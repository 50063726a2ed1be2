/* Chains through libc's code, and into it. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <search.h>
#include <ucontext.h>
#include "chains.h"

#define ROUNDS 400

static char from[1 << 16], to[1 << 16];
static volatile int sink;

FUNC void clock_caller(void)
{
	long end = clock_ns(CLOCK_MONOTONIC) + COMPUTE_NS;
	struct timespec now;

	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec * 1000000000L + now.tv_nsec < end);
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

	sink = bsearch(&values[0], values, 1, sizeof(int), finds) != NULL;
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
	for (int i = 0; i < ROUNDS * 20; i++) {
		memcpy(to, from, sizeof(to));
		sink = to[i];
	}
}
FUNC void measures(void)
{
	for (int i = 0; i < ROUNDS * 20; i++)
		sink = strlen(from);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2];

FUNC void wants_the_lock(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}
FUNC void *contends(void *data) { wants_the_lock(); return data; }
FUNC void reads(void) { char c; sink = read(pipes[0], &c, 1); }
FUNC void *awaits(void *data) { reads(); return data; }
FUNC void sleeps(void)
{
	struct timespec pause = { .tv_nsec = SLEEP_NS };

	nanosleep(&pause, NULL);
}

/* Runs something in a thread that waits for what it does afterwards. */
static void beside(void *(*begin)(void *), void (*afterwards)(void))
{
	struct timespec pause = { .tv_nsec = 10 * SLEEP_NS };
	pthread_t thread;

	if (pthread_create(&thread, NULL, begin, NULL))
		exit(1);
	nanosleep(&pause, NULL);
	afterwards();
	pthread_join(thread, NULL);
}
static void unlocks(void) { pthread_mutex_unlock(&mutex); }
static void writes(void) { sink = write(pipes[1], "", 1); }

static ucontext_t own_context, coroutine_context;
static char coroutine_stack[1 << 16];

FUNC void coroutine_leaf(void) { stop(); }
FUNC void coroutine(void) { coroutine_leaf(); }
FUNC void switches(void)
{
	getcontext(&coroutine_context);
	coroutine_context.uc_stack.ss_sp = coroutine_stack;
	coroutine_context.uc_stack.ss_size = sizeof(coroutine_stack);
	coroutine_context.uc_link = &own_context;
	makecontext(&coroutine_context, coroutine, 0);
	swapcontext(&own_context, &coroutine_context);
}

int main(void)
{
	memset(from, 'x', sizeof(from) - 1);
	if (pipe(pipes))
		return 1;
	begin();
	clock_caller();
	sorts();
	searches();
	only_once();
	iterates();
	copies();
	measures();
	sleeps();
	pthread_mutex_lock(&mutex);
	beside(contends, unlocks);
	beside(awaits, writes);
	switches();
	return end();
}
