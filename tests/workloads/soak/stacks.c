/* argv[1] sleeps, each below other callers: which of two functions calls next is a binary digit of its number. */
static int digits;

/* A nap may be over before the thread has left its CPU. */
static __attribute__((noinline)) void sleep_once(void)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	long before = sleeps_so_far();

	do
		nanosleep(&nap, NULL);
	while (sleeps_so_far() == before);
}

__attribute__((noinline)) static void left(long long number, int depth);
__attribute__((noinline)) static void right(long long number, int depth);

static __attribute__((always_inline)) inline void descend(long long number, int depth)
{
	if (depth == digits)
		sleep_once();
	else if (number >> depth & 1)
		right(number, depth + 1);
	else
		left(number, depth + 1);
	/* No tail calls: a caller must still be there. */
	asm volatile("" ::: "memory");
}

static void left(long long number, int depth)
{
	/* So that the two are not made one. */
	asm volatile("# %0" : : "i"(0));
	descend(number, depth);
}

static void right(long long number, int depth)
{
	asm volatile("# %0" : : "i"(1));
	descend(number, depth);
}

static void *sleep_below(void *argument)
{
	long long *sleeps = argument;

	prctl(PR_SET_TIMERSLACK, 1);
	begin();
	long long before = slices();
	for (long long number = 0; number < *sleeps; number++)
		left(number, 0);
	*sleeps = slices() - before;
	end();
	return NULL;
}

int main(int argc, char **argv)
{
	long long sleeps = atoll(argv[1]), slept = sleeps;

	while (1LL << digits < sleeps)
		digits++;
	start_threads(1, sleep_below, &slept, sizeof(slept));
	ready();
	long long start = clock_ns(CLOCK_MONOTONIC);
	wake_all(&begun);
	await_all(1);
	long long took = clock_ns(CLOCK_MONOTONIC) - start;
	say("{\"wall_ns\": %lld, \"done\": %lld, \"slices\": %lld, \"looks\": %lld}\n", took, sleeps, slept, looks);
	return finished();
}
