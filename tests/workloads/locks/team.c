/* GNU's OpenMP: a team of three meets at a barrier 40 times, and one of them works ten times as long as the others. */
#include <omp.h>
#include <pthread.h>

#define ROUNDS 40
#define SLOW 1

static void work(long long ns)
{
	long long until = clock_ns(CLOCK_MONOTONIC) + ns;

	while (clock_ns(CLOCK_MONOTONIC) < until)
		;
}

int main(void)
{
	int slow = 0;

	ready();
#pragma omp parallel num_threads(3)
	for (int i = 0; i < ROUNDS; i++) {
		int is_slow = omp_get_thread_num() == SLOW;

		if (is_slow)
			slow = gettid();
		work(is_slow ? 10000000 : 1000000);
#pragma omp barrier
	}
	say("{\"slow\":%d}\n", slow);
	return finished();
}
