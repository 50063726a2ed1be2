/* chains.h: call chains that stop in known places, and the workloads' protocol: ready, go, done.
 *
 * Every chain ends in stop(), which is inlined: it computes, then sleeps, by a system call of its own. So the function
 * that calls it is the leaf of its samples and of its sleep.
 */
#ifndef CHAINS_H
#define CHAINS_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "machine.h"

#define SLEEP_NS 1000000L

/* A function that is a frame: neither inlined nor cloned nor seen through. */
#define FUNC __attribute__((noinline, noclone, noipa))
#define INLINE static inline __attribute__((always_inline))

static unsigned long laps = 1000000;

INLINE void compute(unsigned long count)
{
	for (unsigned long lap = 0; lap < count; lap++)
		__asm__ volatile("" : : : "memory");
}

INLINE void stop(void)
{
	struct timespec pause;

	pause.tv_sec = 0;
	pause.tv_nsec = SLEEP_NS;
	compute(laps);
	/* More than once: a switch may escape the tools, which count it. */
	for (int i = 0; i < 3; i++)
		system_call(SYS_nanosleep, (long)&pause, 0, 0);
}

static long clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* How many laps COMPUTE_NS are, by the fastest of some attempts: in the others the machine may have done something else. */
static void calibrate(void)
{
	long fastest = COMPUTE_NS;

	for (int attempt = 0; attempt < 8; attempt++) {
		long start = clock_ns(CLOCK_THREAD_CPUTIME_ID), spent;

		compute(laps);
		spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
		if (spent < fastest)
			fastest = spent;
	}
	laps = (double)laps * COMPUTE_NS / fastest;
}

static void await_line(void)
{
	char c = 0;

	while (c != '\n')
		if (read(0, &c, 1) != 1)
			_exit(0);
}

/* Prints without stdio: its locks and buffers would be frames in the way of tests that follow. */
static __attribute__((unused)) void say(const char *line)
{
	if (write(1, line, strlen(line)) < 0)
		_exit(9);
}

static __attribute__((unused)) void begin(void)
{
	char line[32];

	calibrate();
	snprintf(line, sizeof(line), "ready %d\n", getpid());
	say(line);
	await_line();
}

static __attribute__((unused)) int end(void)
{
	say("done\n");
	await_line();
	return 0;
}

#endif
