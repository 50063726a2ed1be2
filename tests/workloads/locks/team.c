/* GNU's OpenMP: a team of three meets at a barrier 40 times, and one of them comes last, when the others have long been asleep there. */
#include <omp.h>
#include <pthread.h>

#define TEAM 3
#define ROUNDS 40
#define SLOW 1

static volatile int tids[TEAM];
/* Barriers that each is about to sleep at. */
static volatile int come[TEAM];

/* The slow one sees the others asleep at the barrier before it comes there. */
static void come_to(int barrier)
{
	int self = omp_get_thread_num();

	come[self] = barrier;
	for (int i = 0; self == SLOW && i < TEAM; i++) {
		while (come[i] < barrier)
			usleep(200);
		if (i != SLOW)
			await_call(&tids[i], SYS_futex);
	}
}

int main(void)
{
	ready();
#pragma omp parallel num_threads(TEAM)
	{
		int self = omp_get_thread_num();

		tids[self] = gettid();
		for (int i = 1; i <= ROUNDS; i++) {
			busy_ns(CLOCK_MONOTONIC, self == SLOW ? 10000000 : 1000000);
			come_to(i);
#pragma omp barrier
		}
		/* The team's end is a barrier, too. */
		come_to(ROUNDS + 1);
	}
	say("{\"slow\":%d, \"waits\":%d, \"last\":%d}\n", tids[SLOW], (TEAM - 1) * ROUNDS, ROUNDS);
	return finished();
}
