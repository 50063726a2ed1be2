/*
 * Work in phases, one per argument, each after a "go": takes that name, then sleeps and burns, 23 times. sleep_late_ns is by how
 * much more than a millisecond sleeps were longer than most, but for their CPU time and their waits for a CPU.
 */
#define ROUNDS 23

int main(int argc, char **argv)
{
	say("ready %d\n", getpid());
	for (int phase = 1; phase < argc && await_go(); phase++) {
		long long burnt = 0, slept = 0, worked = 0, waited = 0, start;
		long long off[ROUNDS];

		if (prctl(PR_SET_NAME, argv[phase]))
			return 1;
		start = clock_ns(CLOCK_MONOTONIC);
		for (int i = 0; i < ROUNDS; i++) {
			const struct timespec pause = { .tv_nsec = 10000000 };
			long long before = clock_ns(CLOCK_MONOTONIC), cpu, now, queued, all;

			cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			queued = schedstat(1);
			nanosleep(&pause, NULL);
			queued = schedstat(1) - queued;
			now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			all = clock_ns(CLOCK_MONOTONIC) - before;
			off[i] = all - queued - (now - cpu);
			slept += all;
			waited += queued;
			worked += now - cpu;
			cpu = now;
			while (now < cpu + 10000000)
				now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			burnt += now - cpu;
		}
		say("{\"start_ns\": %lld, \"sleep_ns\": %lld, \"sleep_cpu_ns\": %lld, \"sleep_wait_ns\": %lld, \"sleep_late_ns\": %lld, "
		    "\"burn_ns\": %lld}\ndone\n",
		    start, slept, worked, waited, late_ns(off, ROUNDS), burnt);
	}
	await_go();
	return 0;
}
