/* A thread waits on a semaphore for another one, which computes and sleeps before it posts, and times what it does: from when it knows
 * the other to be asleep until it posts, and from before that until it has posted. A nap is over before it begins where a hypervisor
 * takes the CPU away meanwhile: then there is another one.
 */
#include <pthread.h>
#include <semaphore.h>

#define ROUNDS 10
#define SPIN_NS 8000000
#define SLEEP_NS 12000000

static sem_t begin, done;
static int waiter;

static long long cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void nap(void)
{
	long before = sleeps_so_far();

	do
		pause_ns(SLEEP_NS);
	while (sleeps_so_far() == before);
}

static void *wait_for_it(void *unused)
{
	__atomic_store_n(&waiter, gettid(), __ATOMIC_SEQ_CST);
	for (int i = 0; i < ROUNDS; i++) {
		sem_wait(&begin);
		sem_wait(&done);
	}
	return NULL;
}

int main(void)
{
	long long least_cpu = 0, most = 0;
	pthread_t thread;

	ready();
	sem_init(&begin, 0, 0);
	sem_init(&done, 0, 0);
	pthread_create(&thread, NULL, wait_for_it, NULL);
	for (int i = 0; i < ROUNDS; i++) {
		long long from = clock_ns(CLOCK_MONOTONIC), known_cpu;

		sem_post(&begin);
		usleep(2000);
		await_state(&waiter, 'S');
		known_cpu = cpu_ns();
		while (cpu_ns() < known_cpu + SPIN_NS)
			;
		nap();
		least_cpu += cpu_ns() - known_cpu;
		sem_post(&done);
		most += clock_ns(CLOCK_MONOTONIC) - from;
	}
	pthread_join(thread, NULL);
	say("{\"waiter\":%d,\"least_cpu_ns\":%lld,\"asleep_ns\":%lld,\"most_ns\":%lld}\n", waiter, least_cpu,
	    (long long)ROUNDS * SLEEP_NS, most);
	return finished();
}
