/* Two phases of computing, or of sleeping, under their own names. The hot function leaves garbage in the frame pointer. */
static int sleeps;
__attribute__((noinline)) unsigned long burn(unsigned long x)
{
	const struct timespec pause = { .tv_nsec = 5000000 };

	if (sleeps)
		return nanosleep(&pause, NULL);
	__asm__ volatile("mov %0, %%rbp" : : "r"(x * 8) : "rbp");
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("" : "+r"(x) : : "rbp");
	return x;
}
static long long clock_of_phase(void)
{
	return clock_ns(sleeps ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}
#define PHASE(name)                                                         \
	__attribute__((noinline)) long long name(long long ms)              \
	{                                                                   \
		long long start = clock_of_phase(), now = start;            \
                                                                            \
		/* A turn takes 25 us at 4 GHz: stolen time is no work. */  \
		for (long n = 0; now < start + ms * 1000000 || (!sleeps && n < ms * 40); n++) { \
			burn(now);                                          \
			now = clock_of_phase();                             \
		}                                                           \
		return now - start;                                         \
	}
PHASE(early)
PHASE(late)
