/* GNU's OpenMP: three threads sleep in a critical section by turns, the first one when the others are asleep before it. */
#include <omp.h>

#define TEAM 3
#define ROUNDS 20
#define IN_IT_NS 5000000

/* Each thread's, from when it does nothing but go for the section. */
static volatile int tids[TEAM];
static int has_begun;

/* Until the others wait for the section. */
static void await_others(int self)
{
	for (int i = 0; i < TEAM; i++)
		if (i != self)
			await_call(&tids[i], SYS_futex);
}

int main(void)
{
	ready();
#pragma omp parallel num_threads(TEAM)
	{
		int self = omp_get_thread_num();

		tids[self] = gettid();
		for (int i = 0; i < ROUNDS; i++) {
#pragma omp critical
			{
				if (!has_begun) {
					await_others(self);
					has_begun = 1;
				}
				pause_ns(IN_IT_NS);
			}
		}
	}
	say("{\"waits\":%d}\n", TEAM - 1);
	return finished();
}
