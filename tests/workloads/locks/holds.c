/* Holds locks of every kind for known times, by its own clock, taken inside the lock.
 *
 * Each lock's line: its address, how it was held, how often and how long in all, and tries that failed or gave up.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, waited = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int turn;

static void spend(int us)
{
	for (long long end = clock_ns(CLOCK_MONOTONIC) + us * 1000LL; clock_ns(CLOCK_MONOTONIC) < end;)
		;
}

static void line(void *lock, const char *mode, int holds, long long ns, int tries, int given_up)
{
	say("{\"address\": \"%p\", \"mode\": \"%s\", \"holds\": %d, \"held_ns\": %lld, \"tries_failed\": %d, \"timed_out\": %d}\n",
	    lock, mode, holds, ns, tries, given_up);
}

static void *try_it(void *argument)
{
	struct timespec past = { 1, 0 };

	for (int i = 0; i < 13; i++)
		if (pthread_mutex_trylock(&plain) != EBUSY)
			_exit(7);
	for (int i = 0; i < 5; i++)
		if (pthread_mutex_timedlock(&plain, &past) != ETIMEDOUT)
			_exit(6);
	return NULL;
}

static void hold_plain(void)
{
	long long ns = 0, start;
	pthread_t other;

	for (int i = 0; i < 211; i++) {
		pthread_mutex_lock(&plain);
		start = clock_ns(CLOCK_MONOTONIC);
		spend(1500);
		if (i == 100) {
			pthread_create(&other, NULL, try_it, NULL);
			pthread_join(other, NULL);
		}
		ns += clock_ns(CLOCK_MONOTONIC) - start;
		pthread_mutex_unlock(&plain);
	}
	line(&plain, "mutex", 211, ns, 13, 5);
}

/* Three times at once is one hold. */
static void hold_recursive(void)
{
	pthread_mutexattr_t attributes;
	long long ns = 0, start;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attributes);
	for (int i = 0; i < 53; i++) {
		pthread_mutex_lock(&recursive);
		start = clock_ns(CLOCK_MONOTONIC);
		pthread_mutex_lock(&recursive);
		pthread_mutex_trylock(&recursive);
		spend(2000);
		pthread_mutex_unlock(&recursive);
		pthread_mutex_unlock(&recursive);
		ns += clock_ns(CLOCK_MONOTONIC) - start;
		pthread_mutex_unlock(&recursive);
	}
	line(&recursive, "mutex", 53, ns, 0, 0);
}

static void hold_rwlock(void)
{
	long long reading = 0, writing = 0, start;

	for (int i = 0; i < 61; i++) {
		pthread_rwlock_rdlock(&rwlock);
		start = clock_ns(CLOCK_MONOTONIC);
		/* Once more by the same reader. */
		pthread_rwlock_tryrdlock(&rwlock);
		spend(2000);
		pthread_rwlock_unlock(&rwlock);
		reading += clock_ns(CLOCK_MONOTONIC) - start;
		pthread_rwlock_unlock(&rwlock);
	}
	for (int i = 0; i < 47; i++) {
		pthread_rwlock_wrlock(&rwlock);
		start = clock_ns(CLOCK_MONOTONIC);
		spend(2000);
		writing += clock_ns(CLOCK_MONOTONIC) - start;
		pthread_rwlock_unlock(&rwlock);
	}
	line(&rwlock, "rwlock (read)", 61, reading, 0, 0);
	line(&rwlock, "rwlock (write)", 47, writing, 0, 0);
}

/* Two threads take turns: who waits for its turn does not hold the mutex. */
static void *take_turns(void *argument)
{
	long long *ns = argument, start;
	int mine = ns[1];

	for (int i = 0; i < 31; i++) {
		pthread_mutex_lock(&waited);
		start = clock_ns(CLOCK_MONOTONIC);
		while (turn != mine) {
			ns[0] += clock_ns(CLOCK_MONOTONIC) - start;
			ns[2]++;
			pthread_cond_wait(&changed, &waited);
			start = clock_ns(CLOCK_MONOTONIC);
		}
		spend(2000);
		turn = 1 - mine;
		pthread_cond_signal(&changed);
		ns[0] += clock_ns(CLOCK_MONOTONIC) - start;
		pthread_mutex_unlock(&waited);
	}
	return NULL;
}

static void hold_waited(void)
{
	long long first[3] = { 0, 0, 0 }, second[3] = { 0, 1, 0 };
	pthread_t other;

	pthread_create(&other, NULL, take_turns, second);
	take_turns(first);
	pthread_join(other, NULL);
	/* A wait cuts a hold in two. */
	line(&waited, "mutex", 62 + first[2] + second[2], first[0] + second[0], 0, 0);
}

/* What locking and giving back takes without anybody in the way, ns. */
static long long pair(void)
{
	long long start = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&plain);
		pthread_mutex_unlock(&plain);
	}
	return (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / 1000;
}

/* A child, and one of that child's, each lock until it is about as fast as without probes, or 20 s have passed. */
static void fork_and_lock(long long untraced)
{
	long long now, end = clock_ns(CLOCK_MONOTONIC) + 20000000000LL;
	pid_t child = fork(), grandchild;

	if (child) {
		waitpid(child, NULL, 0);
		return;
	}
	grandchild = fork();
	do
		now = pair();
	while (now > 20 * untraced + 100 && clock_ns(CLOCK_MONOTONIC) < end);
	say("{\"untraced_ns\": %lld, \"pair_ns\": %lld}\n", untraced, now);
	if (grandchild)
		waitpid(grandchild, NULL, 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	long long untraced = pair();

	ready();
	if (argc > 1 && !strcmp(argv[1], "fork")) {
		fork_and_lock(untraced);
	} else if (argc > 1) {
		/* A tight loop, until told to measure what a pair costs now. */
		pthread_t loop;
		void *spin(void *unused)
		{
			while (!__atomic_load_n(&turn, __ATOMIC_SEQ_CST)) {
				pthread_mutex_lock(&plain);
				pthread_mutex_unlock(&plain);
			}
			return NULL;
		}

		pthread_create(&loop, NULL, spin, NULL);
		say("done\n");
		await_go();
		__atomic_store_n(&turn, 1, __ATOMIC_SEQ_CST);
		pthread_join(loop, NULL);
		long long start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < 100000; i++) {
			pthread_mutex_lock(&plain);
			pthread_mutex_unlock(&plain);
		}
		say("{\"pair_ns\": %lld}\n", (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / 100000);
	} else {
		hold_plain();
		hold_recursive();
		hold_rwlock();
		hold_waited();
	}
	say("done\n");
	await_go();
	return 0;
}
