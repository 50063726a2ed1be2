/* Waits for every kind of pthread lock, one after another. Each lock is a variable of its name. */

pthread_mutex_t lock_normal = PTHREAD_MUTEX_INITIALIZER, lock_recursive, lock_errorcheck, lock_robust, lock_inheriting,
		lock_spun;
pthread_mutex_t lock_timed = PTHREAD_MUTEX_INITIALIZER, lock_late = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t lock_read = PTHREAD_RWLOCK_INITIALIZER, lock_written = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t lock_readers = PTHREAD_RWLOCK_INITIALIZER, lock_between;
struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int rung;
} lock_cond = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };
sem_t lock_sem;
pthread_barrier_t lock_barrier;
uint32_t lock_raced = 1;

#define ROUNDS_OF_RACES 11

static void check(int error)
{
	if (error)
		_exit(7);
}

__attribute__((noinline)) static void take_mutex(void *lock)
{
	check(pthread_mutex_lock(lock));
	check(pthread_mutex_unlock(lock));
}

static void hold_mutex(void *lock)
{
	check(pthread_mutex_lock(lock));
}

static void release_mutex(void *lock)
{
	check(pthread_mutex_unlock(lock));
}

static struct timespec in_ns(long long ns)
{
	long long at = clock_ns(CLOCK_REALTIME) + ns;

	return (struct timespec){ .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };
}

static void take_timed(void *lock)
{
	struct timespec late = in_ns(1000LL * 1000000000);

	check(pthread_mutex_timedlock(lock, &late));
	check(pthread_mutex_unlock(lock));
}

/* Gives up: the holder waits for that. Whoever is late finds its time over, and has not slept: it tries once more. */
static void take_in_vain(void *lock)
{
	long before;

	do {
		struct timespec soon = in_ns(HOLD_NS);

		before = sleeps_so_far();
		check(pthread_mutex_timedlock(lock, &soon) != ETIMEDOUT);
	} while (sleeps_so_far() == before);
}

static void take_read(void *lock)
{
	check(pthread_rwlock_rdlock(lock));
	check(pthread_rwlock_unlock(lock));
}

static void take_write(void *lock)
{
	check(pthread_rwlock_wrlock(lock));
	check(pthread_rwlock_unlock(lock));
}

static void hold_write(void *lock)
{
	check(pthread_rwlock_wrlock(lock));
}

static void hold_read(void *lock)
{
	check(pthread_rwlock_rdlock(lock));
}

static void release_rwlock(void *lock)
{
	check(pthread_rwlock_unlock(lock));
}

static void wait_rung(void *unused)
{
	check(pthread_mutex_lock(&lock_cond.mutex));
	while (!lock_cond.rung)
		check(pthread_cond_wait(&lock_cond.cond, &lock_cond.mutex));
	lock_cond.rung = 0;
	check(pthread_mutex_unlock(&lock_cond.mutex));
}

static void ring(void *unused)
{
	check(pthread_mutex_lock(&lock_cond.mutex));
	lock_cond.rung = 1;
	check(pthread_mutex_unlock(&lock_cond.mutex));
	check(pthread_cond_signal(&lock_cond.cond));
}

static void wait_sem(void *lock)
{
	check(sem_wait(lock));
}

static void post_sem(void *lock)
{
	check(sem_post(lock));
}

static void meet(void *lock)
{
	int error = pthread_barrier_wait(lock);

	check(error && error != PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Ends when it is waited for. */
static void *sleeper(void *tid)
{
	*(volatile pid_t *)tid = syscall(SYS_gettid);
	await_sleep(waiter_tid);
	hold_on();
	return NULL;
}

/* Joins the thread that it has just made: who is waited for is known by its ID only. */
static void join_sleeper(void *unused)
{
	volatile pid_t tid;
	pthread_t thread;

	check(pthread_create(&thread, NULL, sleeper, (void *)&tid));
	check(pthread_join(thread, NULL));
}

static void init_mutex(pthread_mutex_t *mutex, int type, int robust, int protocol)
{
	pthread_mutexattr_t attr;

	check(pthread_mutexattr_init(&attr));
	check(pthread_mutexattr_settype(&attr, type));
	check(pthread_mutexattr_setrobust(&attr, robust));
	check(pthread_mutexattr_setprotocol(&attr, protocol));
	check(pthread_mutex_init(mutex, &attr));
}

static void init_shared_rwlock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	check(pthread_rwlockattr_init(&attr));
	check(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	check(pthread_rwlock_init(lock, &attr));
}

/* The waiter has asked the kernel, which lets it spin as long as its owner has a CPU. */
static void work_while_awaited(void *lock)
{
	pthread_mutex_t *mutex = lock;

	while (!(__atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) & 0x80000000 /* FUTEX_WAITERS */))
		;
	busy_ns(CLOCK_MONOTONIC, HOLD_NS);
}

/* Calls whose word has changed already. */
static void race(void)
{
	for (int i = 0; i < ROUNDS_OF_RACES; i++)
		check(call_futex(&lock_raced, 128, 2, NULL, NULL, 0) != -1 || errno != EAGAIN);
	say("{\"name\": \"lock_raced\", \"class\": \"raced\", \"rounds\": %d, \"waiter\": %d, \"holder\": 0}\n",
	    ROUNDS_OF_RACES, getpid());
}

#define MUTEX(variable, how) { #variable, "mutex", how, hold_mutex, release_mutex, &variable, ROUNDS, 0 }
#define RWLOCK(variable, how, with) { #variable, "rwlock", how, with, release_rwlock, &variable, ROUNDS, 0 }

int main(void)
{
	struct stage stages[] = {
		MUTEX(lock_normal, take_mutex),
		MUTEX(lock_recursive, take_mutex),
		MUTEX(lock_errorcheck, take_mutex),
		MUTEX(lock_robust, take_mutex),
		{ "lock_inheriting", "pi", take_mutex, hold_mutex, release_mutex, &lock_inheriting, ROUNDS, 0 },
		{ "lock_spun", "pi", take_mutex, hold_mutex, release_mutex, &lock_spun, ROUNDS, 0, work_while_awaited },
		MUTEX(lock_timed, take_timed),
		{ "lock_late", "mutex", take_in_vain, hold_mutex, release_mutex, &lock_late, ROUNDS, 1 },
		RWLOCK(lock_read, take_read, hold_write),
		RWLOCK(lock_written, take_write, hold_write),
		RWLOCK(lock_readers, take_write, hold_read),
		RWLOCK(lock_between, take_write, hold_write),
		{ "lock_cond", "cond", wait_rung, NULL, ring, &lock_cond, ROUNDS, 0 },
		{ "lock_sem", "sem", wait_sem, NULL, post_sem, &lock_sem, ROUNDS, 0 },
		{ "lock_barrier", "barrier", meet, NULL, meet, &lock_barrier, ROUNDS, 0 },
		{ "join", "join", join_sleeper, NULL, NULL, NULL, ROUNDS, 1 },
	};

	init_mutex(&lock_recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	init_mutex(&lock_errorcheck, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	init_mutex(&lock_robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
	init_mutex(&lock_inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
	init_mutex(&lock_spun, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
	init_shared_rwlock(&lock_between);
	check(sem_init(&lock_sem, 0, 0));
	check(pthread_barrier_init(&lock_barrier, NULL, 2));
	ready();
	for (unsigned i = 0; i < sizeof(stages) / sizeof(*stages); i++)
		play(&stages[i]);
	race();
	return finished();
}
