/* argv[1] threads at once, each of which sleeps argv[2] times. */
static int naps;

struct sleeper {
	long long slices;
};

static void *sleep_often(void *argument)
{
	struct sleeper *sleeper = argument;
	const struct timespec nap = { .tv_nsec = 20000 };

	begin();
	long long before = slices();
	for (int i = 0; i < naps; i++)
		nanosleep(&nap, NULL);
	sleeper->slices = slices() - before;
	end();
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = atoi(argv[1]);
	struct sleeper *sleepers = calloc(threads, sizeof(*sleepers));
	long long total = 0;

	naps = atoi(argv[2]);
	start_threads(threads, sleep_often, sleepers, sizeof(*sleepers));
	ready();
	long long start = clock_ns(CLOCK_MONOTONIC);
	wake_all(&begun);
	await_all(threads);
	long long took = clock_ns(CLOCK_MONOTONIC) - start;
	for (int i = 0; i < threads; i++)
		total += sleepers[i].slices;
	say("{\"wall_ns\": %lld, \"done\": %lld, \"slices\": %lld, \"looks\": %lld, \"threads\": %d}\n", took,
	    (long long)threads * naps, total, looks, threads);
	return finished();
}
