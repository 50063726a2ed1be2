/* One thread waits for a mutex that main holds, for shorter and for longer than the intervals of whoever reports on it. */

#define WAITS 13
#define SHORT_NS 83000000LL
#define LONG_NS 700000000LL

pthread_mutex_t lock_held = PTHREAD_MUTEX_INITIALIZER;

static pthread_barrier_t step;
static volatile pid_t tid;
static volatile int come;

static void *wait_often(void *unused)
{
	tid = syscall(SYS_gettid);
	for (int i = 0; i < WAITS; i++) {
		pthread_barrier_wait(&step);
		come = i + 1;
		pthread_mutex_lock(&lock_held);
		pthread_mutex_unlock(&lock_held);
		pthread_barrier_wait(&step);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	pthread_barrier_init(&step, NULL, 2);
	ready();
	pthread_create(&thread, NULL, wait_often, NULL);
	for (int i = 0; i < WAITS; i++) {
		pthread_mutex_lock(&lock_held);
		pthread_barrier_wait(&step);
		while (come <= i)
			sched_yield();
		await_sleep(tid);
		pause_ns(i % 4 == 1 ? LONG_NS : SHORT_NS);
		pthread_mutex_unlock(&lock_held);
		pthread_barrier_wait(&step);
	}
	pthread_join(thread, NULL);
	say("{\"tid\": %d, \"waits\": %d}\n", tid, WAITS);
	return finished();
}
