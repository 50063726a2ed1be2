/* Threads that fight for a mutex until another word comes, and note every time when they slept for it: who, from, until, and how
 * often.
 */
#include <pthread.h>

#define THREADS 3
#define MOST 100000

pthread_mutex_t fought = PTHREAD_MUTEX_INITIALIZER;
static struct { long tid; long long from, until; long sleeps; } waits[THREADS][MOST];
static long count[THREADS];
static volatile int is_over;

static void *fight(void *at)
{
	long i = (long)at;

	while (!is_over && count[i] < MOST) {
		long before = sleeps_so_far();
		long long from = clock_ns(CLOCK_MONOTONIC);

		pthread_mutex_lock(&fought);
		if (sleeps_so_far() > before) {
			waits[i][count[i]].sleeps = sleeps_so_far() - before;
			waits[i][count[i]].tid = gettid();
			waits[i][count[i]].from = from;
			waits[i][count[i]++].until = clock_ns(CLOCK_MONOTONIC);
		}
		pause_ns(400000);
		pthread_mutex_unlock(&fought);
		pause_ns(100000);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	ready();
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, fight, (void *)i);
	await_go();
	is_over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (long n = 0; n < count[i]; n++)
			say("{\"tid\": %ld, \"from_ns\": %lld, \"until_ns\": %lld, \"sleeps\": %ld}\n",
			    waits[i][n].tid, waits[i][n].from, waits[i][n].until, waits[i][n].sleeps);
	return finished();
}
