/* Threads that fight for two mutexes for as many ms as the first argument says: one is held for less than a millisecond at a time,
 * the other for longer than anybody looks. Each knows how often it slept for them, by the kernel's count of its switches, and
 * for how long.
 */
#include <pthread.h>
#include <sys/resource.h>

#define PER_LOCK 3

struct fight {
	pthread_mutex_t *lock;
	const char *name;
	long long least_ns, most_ns, pause_ns, waits, waited_ns;
	unsigned int seed;
};

pthread_mutex_t lock_short = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_long = PTHREAD_MUTEX_INITIALIZER;

static long long end_ns;

static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void rest(struct fight *fight, long long least_ns, long long most_ns)
{
	long long ns = least_ns + (most_ns - least_ns) * rand_r(&fight->seed) / RAND_MAX;
	struct timespec rest = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	nanosleep(&rest, NULL);
}

static void *work(void *argument)
{
	struct fight *fight = argument;

	while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
		long before = sleeps();
		long long from = clock_ns(CLOCK_MONOTONIC), until;

		pthread_mutex_lock(fight->lock);
		until = clock_ns(CLOCK_MONOTONIC);
		if (sleeps() > before) {
			fight->waits += sleeps() - before;
			fight->waited_ns += until - from;
		}
		rest(fight, fight->least_ns, fight->most_ns);
		pthread_mutex_unlock(fight->lock);
		rest(fight, 0, fight->pause_ns);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct fight fights[2 * PER_LOCK];
	pthread_t threads[2 * PER_LOCK];

	for (int i = 0; i < 2 * PER_LOCK; i++)
		fights[i] = i < PER_LOCK ? (struct fight){ &lock_short, "lock_short", 100000, 700000, 500000, .seed = i } :
					   (struct fight){ &lock_long, "lock_long", 20000000, 300000000, 50000000, .seed = i };
	ready();
	end_ns = clock_ns(CLOCK_MONOTONIC) + atoll(argv[argc - 1]) * 1000000;
	for (int i = 0; i < 2 * PER_LOCK; i++)
		pthread_create(&threads[i], NULL, work, &fights[i]);
	for (int i = 0; i < 2 * PER_LOCK; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2 * PER_LOCK; i++)
		say("{\"name\": \"%s\", \"waits\": %lld, \"waited_ns\": %lld}\n", fights[i].name, fights[i].waits,
		    fights[i].waited_ns);
	say("done\n");
	await_go();
	return 0;
}
