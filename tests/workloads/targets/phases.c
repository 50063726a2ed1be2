/*
 * Work in phases, one per argument, each after a "go": takes that name, then sleeps and burns, 23 times. It has its name from some
 * time between before_ns and start_ns on.
 */
#define ROUNDS 23

int main(int argc, char **argv)
{
	say("ready %d\n", getpid());
	for (int phase = 1; phase < argc && await_go(); phase++) {
		long long before = clock_ns(CLOCK_MONOTONIC), start;

		if (prctl(PR_SET_NAME, argv[phase]))
			return 1;
		start = clock_ns(CLOCK_MONOTONIC);
		for (int i = 0; i < ROUNDS; i++) {
			long before = sleeps_so_far();

			/* A thread that is late finds its time over, and has not slept. */
			do
				pause_ns(10000000);
			while (sleeps_so_far() == before);
			busy_ns(CLOCK_THREAD_CPUTIME_ID, 10000000);
		}
		say("{\"before_ns\": %lld, \"start_ns\": %lld, \"end_ns\": %lld}\ndone\n", before, start, clock_ns(CLOCK_MONOTONIC));
	}
	await_go();
	return 0;
}
