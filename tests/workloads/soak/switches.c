/* Two threads per CPU that pass a byte to and fro, for argv[1] ms: as many context switches as the machine gives. */
struct side {
	int cpu, from, to, opens;
	long long slices, rounds;
};

static long long end_ns;

static void *pass(void *argument)
{
	struct side *side = argument;
	char byte = 0;

	run_on(side->cpu);
	begin();
	long long before = slices();
	if (side->opens)
		write(side->to, &byte, 1);
	while (read(side->from, &byte, 1) == 1) {
		side->rounds++;
		/* Whoever sees the end passes that on. */
		if (side->opens && clock_ns(CLOCK_MONOTONIC) >= end_ns)
			byte = 1;
		write(side->to, &byte, 1);
		if (byte)
			break;
	}
	side->slices = slices() - before;
	end();
	return NULL;
}

int main(int argc, char **argv)
{
	static struct side sides[2 * 1024];
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long long total = 0, rounds = 0;

	for (int i = 0; i < 2 * cpus; i += 2) {
		int there[2], back[2];

		if (pipe(there) || pipe(back))
			return 3;
		sides[i] = (struct side){ .cpu = i / 2, .from = back[0], .to = there[1], .opens = 1 };
		sides[i + 1] = (struct side){ .cpu = i / 2, .from = there[0], .to = back[1] };
	}
	start_threads(2 * cpus, pass, sides, sizeof(*sides));
	ready();
	long long start = clock_ns(CLOCK_MONOTONIC);
	end_ns = start + atoll(argv[1]) * 1000000;
	wake_all(&begun);
	await_all(2 * cpus);
	long long took = clock_ns(CLOCK_MONOTONIC) - start;
	for (int i = 0; i < 2 * cpus; i++) {
		total += sides[i].slices;
		rounds += sides[i].rounds;
	}
	say("{\"wall_ns\": %lld, \"done\": %lld, \"slices\": %lld, \"looks\": %lld, \"threads\": %d}\n", took, rounds, total, looks,
	    2 * cpus);
	return finished();
}
