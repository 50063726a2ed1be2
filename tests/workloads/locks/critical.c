/* GNU's OpenMP: three threads sleep in a critical section by turns. */
#include <omp.h>

#define ROUNDS 20
#define IN_IT_NS 5000000

int main(void)
{
	long long asleep = 0;

	ready();
#pragma omp parallel num_threads(3)
	for (int i = 0; i < ROUNDS; i++) {
#pragma omp critical
		{
			struct timespec length = {0, IN_IT_NS};
			long long begin = clock_ns(CLOCK_MONOTONIC);

			nanosleep(&length, NULL);
			asleep += clock_ns(CLOCK_MONOTONIC) - begin;
		}
	}
	say("{\"asleep_ns\":%lld}\n", asleep);
	return finished();
}
