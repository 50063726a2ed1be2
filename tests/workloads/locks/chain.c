/* Front waits for middle, middle for back, back for the keeper: each for a lock that the next one holds. In even rounds the
 * front goes to sleep first, in odd ones the back.
 */

pthread_mutex_t lock_first = PTHREAD_MUTEX_INITIALIZER, lock_second = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t lock_third = PTHREAD_RWLOCK_INITIALIZER;

#define WAITERS 3
#define KEEPER 3

static const char *const names[] = { "front", "middle", "back", "keeper" };
static pthread_barrier_t step;
static volatile pid_t tids[WAITERS + 1];
/* Rounds in which the thread has come to its lock. */
static volatile int come[WAITERS];

/* Until it sleeps for the lock. */
static void await_waiter(int which, int round)
{
	while (come[which] <= round)
		sched_yield();
	await_sleep(tids[which]);
}

static void hold(int which)
{
	if (which == 1)
		pthread_mutex_lock(&lock_first);
	else if (which == 2)
		pthread_mutex_lock(&lock_second);
	else if (which == KEEPER)
		pthread_rwlock_wrlock(&lock_third);
}

static void release(int which)
{
	if (which == 1)
		pthread_mutex_unlock(&lock_first);
	else if (which == 2)
		pthread_mutex_unlock(&lock_second);
	else if (which == KEEPER)
		pthread_rwlock_unlock(&lock_third);
}

__attribute__((noinline)) static void take_next(int which)
{
	if (which == 0)
		pthread_mutex_lock(&lock_first);
	else if (which == 1)
		pthread_mutex_lock(&lock_second);
	else
		pthread_rwlock_rdlock(&lock_third);
}

static void give_back_next(int which)
{
	if (which == 0)
		pthread_mutex_unlock(&lock_first);
	else if (which == 1)
		pthread_mutex_unlock(&lock_second);
	else
		pthread_rwlock_unlock(&lock_third);
}

static void wait_in_chain(int which, int round)
{
	int earlier = round % 2 ? which + 1 : which - 1;

	if (earlier >= 0 && earlier < WAITERS)
		await_waiter(earlier, round);
	come[which] = round + 1;
	take_next(which);
	give_back_next(which);
}

/* Rounds in which the thread slept for a lock for certain as another one began to wait for its own. */
static int asleep(int which)
{
	return which > 0 && which < KEEPER ? ROUNDS / 2 : 0;
}

static void *run(void *argument)
{
	long which = (long)argument;

	prctl(PR_SET_NAME, names[which]);
	tids[which] = syscall(SYS_gettid);
	for (int round = 0; round < ROUNDS; round++) {
		hold(which);
		pthread_barrier_wait(&step);
		if (which == KEEPER) {
			for (int i = 0; i < WAITERS; i++)
				await_waiter(i, round);
			hold_on();
		} else {
			wait_in_chain(which, round);
		}
		release(which);
		pthread_barrier_wait(&step);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[WAITERS + 1];

	pthread_barrier_init(&step, NULL, WAITERS + 1);
	ready();
	for (long i = 0; i <= KEEPER; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (int i = 0; i <= KEEPER; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i <= KEEPER; i++)
		say("{\"name\": \"%s\", \"tid\": %d, \"asleep\": %d}\n", names[i], tids[i], asleep(i));
	return finished();
}
