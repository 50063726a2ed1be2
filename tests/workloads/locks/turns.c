/* Threads take turns with a lock of their own making, a semaphore. Who has it sleeps once all others wait for it: each wait but those of
 * the end lasts for all of the sleep of whoever ends it.
 */
#include <pthread.h>
#include <semaphore.h>

#define THREADS 4
#define TURNS 100
#define NAP_NS 2000000

static sem_t lock;
static int takers[THREADS], turns;

static void *take_turns(void *number)
{
	long which = (long)number;

	__atomic_store_n(&takers[which], gettid(), __ATOMIC_SEQ_CST);
	for (;;) {
		sem_wait(&lock);
		if (turns++ >= TURNS)
			break;
		for (int i = 0; i < THREADS; i++)
			if (i != which)
				await_call(&takers[i], SYS_futex);
		pause_ns(NAP_NS);
		sem_post(&lock);
	}
	sem_post(&lock);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	ready();
	sem_init(&lock, 0, 1);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, take_turns, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	say("{\"threads\":%d,\"nap_ns\":%d}\n", THREADS, NAP_NS);
	return finished();
}
