/* Two threads on one CPU and a mutex: the one that has it lets the other one run into it, so that every switch is a wait. */
#include <pthread.h>
#include <sched.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *contend(void *argument)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		sched_yield();
		pthread_mutex_unlock(&lock);
	}
	return argument;
}

int main(void)
{
	/* Fair scheduling takes sched_yield for a hint. */
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	pthread_t other;

	if (sched_setscheduler(0, SCHED_FIFO, &lowest) || pthread_create(&other, NULL, contend, NULL))
		return 1;
	contend(NULL);
	return 0;
}
