/* Threads that wait for each other's locks for ever, and say who waits for what, held by whom.
 *
 * `ring KINDS N`: thread i takes lock i, then lock i + 1; N more threads wait for lock 0. A lock's kind is one letter: m mutex,
 * t mutex that is waited for with a time-out, w rwlock that is written first and read then, W one that is written twice, p mutex with priority inheritance.
 * `gone`: two threads wait for a mutex whose holder has exited. `join`: a thread joins another that waits for its mutex.
 * `shared KINDS`: as `ring KINDS 0`, but each thread in a process of its own.
 * `apart N`: a process waits for a mutex that another one holds, each in a PID namespace of its own; the waiter's number there is 1, the
 * holder's N. In the end it is released.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#define MOST 16

struct lock {
	char kind;
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	int holder;
};

struct waiter {
	int tid;
	struct lock *first, *second;
	/* What it waits for, by its own knowledge: the futex word, or a thread. */
	void *address;
	const char *class;
	int *holder;
};

struct shared {
	struct lock locks[MOST];
	pthread_barrier_t ready, over;
	struct waiter waiters[2 * MOST];
} *all;

static int waiters;

static int is_rwlock(struct lock *lock)
{
	return lock->kind == 'w' || lock->kind == 'W';
}

static void *futex_of(struct lock *lock)
{
#ifndef __GLIBC__
	/* musl's mutex has its type first. */
	return is_rwlock(lock) ? (char *)&lock->rwlock : (char *)&lock->mutex + 4;
#endif
	/* Readers sleep on the phase, the third word, and writers behind a writer on the next one. */
	return is_rwlock(lock) ? (char *)&lock->rwlock + (lock->kind == 'w' ? 8 : 12) : (char *)&lock->mutex;
}

static void prepare(struct lock *lock, char kind, int shared)
{
	pthread_mutexattr_t attributes;
	pthread_rwlockattr_t for_rwlock;

	lock->kind = kind;
	pthread_mutexattr_init(&attributes);
	if (kind == 'p')
		pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	if (shared)
		pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&lock->mutex, &attributes);
	pthread_rwlockattr_init(&for_rwlock);
	if (shared)
		pthread_rwlockattr_setpshared(&for_rwlock, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&lock->rwlock, &for_rwlock);
}

static void take_first(struct lock *lock)
{
	if (is_rwlock(lock))
		pthread_rwlock_wrlock(&lock->rwlock);
	else
		pthread_mutex_lock(&lock->mutex);
	lock->holder = gettid();
}

__attribute__((noinline)) static void take_second(struct lock *lock)
{
	struct timespec late;

	WITH_FRAME;
	clock_gettime(CLOCK_REALTIME, &late);
	late.tv_sec += 3600;
	if (lock->kind == 'w')
		pthread_rwlock_rdlock(&lock->rwlock);
	else if (lock->kind == 'W')
		pthread_rwlock_wrlock(&lock->rwlock);
	else if (lock->kind == 't')
		pthread_mutex_timedlock(&lock->mutex, &late);
	else
		pthread_mutex_lock(&lock->mutex);
	__asm__ volatile("");
}

static void *work(void *argument)
{
	struct waiter *waiter = argument;

	waiter->tid = gettid();
	prctl(PR_SET_NAME, waiter->first ? "member" : "innocent");
	if (waiter->first)
		take_first(waiter->first);
	pthread_barrier_wait(&all->ready);
	waiter->class = waiter->second->kind == 'w' ? "rwlock (read)" :
			waiter->second->kind == 'W' ? "rwlock (write)" :
			waiter->second->kind == 'p' ? "PI mutex" : "mutex";
	waiter->holder = &waiter->second->holder;
	__atomic_store_n(&waiter->address, futex_of(waiter->second), __ATOMIC_SEQ_CST);
	take_second(waiter->second);
	_exit(8);
}

static pthread_t start(struct lock *first, struct lock *second)
{
	struct waiter *waiter = &all->waiters[waiters++];
	pthread_t thread;

	waiter->first = first;
	waiter->second = second;
	pthread_create(&thread, NULL, work, waiter);
	return thread;
}

static void *lock_and_exit(void *argument)
{
	take_first(argument);
	return NULL;
}

static void *lock_and_join(void *argument)
{
	struct waiter *waiter = &all->waiters[waiters++];
	pthread_t other;

	prctl(PR_SET_NAME, "joiner");
	waiter->tid = gettid();
	take_first(argument);
	other = start(NULL, argument);
	pthread_barrier_wait(&all->ready);
	waiter->class = "end of thread";
	waiter->holder = &all->waiters[1].tid;
	__atomic_store_n(&waiter->address, argument, __ATOMIC_SEQ_CST);
	pthread_join(other, NULL);
	_exit(8);
}

/* Whether /proc/TID/syscall begins with a futex call: behind its number. i386 has two, the newer one with 64-bit times. */
static const char *behind_futex(const char *text)
{
	char *behind;
	long number = strtol(text, &behind, 10);
	int is_futex = number == SYS_futex;

#ifdef SYS_futex_time64
	is_futex |= number == SYS_futex_time64;
#endif
	return is_futex && *behind == ' ' ? behind + 1 : "";
}

/* Until the kernel says that the thread sleeps in a futex call, where it should. */
static void await_sleep(struct waiter *waiter)
{
	char path[64], text[256], wanted[64];
	int joins = 0;

	for (;;) {
		/* It may not have begun. */
		snprintf(path, sizeof(path), "/proc/%d/syscall", __atomic_load_n(&waiter->tid, __ATOMIC_SEQ_CST));
		int file = open(path, O_RDONLY);
		int length = read(file, text, sizeof(text) - 1);

		close(file);
		if (length > 0 && __atomic_load_n(&waiter->address, __ATOMIC_SEQ_CST)) {
			text[length] = 0;
			joins = waiter->class[0] == 'e';
			snprintf(wanted, sizeof(wanted), joins ? "0x" : "%p ", waiter->address);
			if (!strncmp(behind_futex(text), wanted, strlen(wanted)))
				return;
		}
		sched_yield();
	}
}

static void ring(const char *kinds, int innocents, int shared)
{
	int n = strlen(kinds);

	pthread_barrierattr_t attributes;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&all->ready, &attributes, n + innocents);
	for (int i = 0; i < n; i++)
		prepare(&all->locks[i], kinds[i], shared);
	for (int i = 0; i < n; i++) {
		if (shared && i > 0) {
			waiters++;
			all->waiters[i].first = &all->locks[i];
			all->waiters[i].second = &all->locks[(i + 1) % n];
			if (fork() == 0) {
				prctl(PR_SET_PDEATHSIG, 9);
				work(&all->waiters[i]);
			}
		} else {
			start(&all->locks[i], &all->locks[(i + 1) % n]);
		}
	}
	for (int i = 0; i < innocents; i++)
		start(NULL, &all->locks[0]);
}

static void gone(void)
{
	pthread_t holder;

	pthread_barrier_init(&all->ready, NULL, 2);
	prepare(&all->locks[0], 'm', 0);
	pthread_create(&holder, NULL, lock_and_exit, &all->locks[0]);
	pthread_join(holder, NULL);
	start(NULL, &all->locks[0]);
	start(NULL, &all->locks[0]);
}

static void join(void)
{
	pthread_t joiner;

	pthread_barrier_init(&all->ready, NULL, 2);
	prepare(&all->locks[0], 'm', 0);
	pthread_create(&joiner, NULL, lock_and_join, &all->locks[0]);
	while (__atomic_load_n(&waiters, __ATOMIC_SEQ_CST) < 2)
		sched_yield();
}

static void hold_apart(int number)
{
	/* The one before it keeps the namespace alive. */
	while (getpid() < number)
		if (fork())
			pause();
	take_first(&all->locks[0]);
	pthread_barrier_wait(&all->ready);
	pthread_barrier_wait(&all->over);
	pthread_mutex_unlock(&all->locks[0].mutex);
	pause();
}

static void wait_apart(void)
{
	static int nobody;
	struct waiter *waiter = &all->waiters[0];

	pthread_barrier_wait(&all->ready);
	waiter->second = &all->locks[0];
	waiter->class = "mutex";
	waiter->holder = &nobody;
	__atomic_store_n(&waiter->address, futex_of(waiter->second), __ATOMIC_SEQ_CST);
	take_second(waiter->second);
	pthread_barrier_wait(&all->ready);
	pause();
}

/* In a PID namespace of its own, where it is the first; here it is a grandchild. */
static void enter(int number)
{
	int child;

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, 9);
	if (unshare(CLONE_NEWPID))
		_exit(7);
	child = fork();
	if (child) {
		if (!number)
			__atomic_store_n(&all->waiters[0].tid, child, __ATOMIC_SEQ_CST);
		pause();
	}
	prctl(PR_SET_PDEATHSIG, 9);
	if (number)
		hold_apart(number);
	else
		wait_apart();
}

static void apart(int number)
{
	pthread_barrierattr_t attributes;

	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&all->ready, &attributes, 2);
	pthread_barrier_init(&all->over, &attributes, 2);
	prepare(&all->locks[0], 'm', 1);
	waiters = 1;
	enter(number);
	enter(0);
}

int main(int argc, char **argv)
{
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ready();
	if (!strcmp(argv[1], "ring"))
		ring(argv[2], atoi(argv[3]), 0);
	else if (!strcmp(argv[1], "shared"))
		ring(argv[2], 0, 1);
	else if (!strcmp(argv[1], "apart"))
		apart(atoi(argv[2]));
	else if (!strcmp(argv[1], "gone"))
		gone();
	else
		join();
	for (int i = 0; i < waiters; i++)
		await_sleep(&all->waiters[i]);
	for (int i = 0; i < waiters; i++) {
		struct waiter *waiter = &all->waiters[i];
		/* A rwlock is named by its beginning, not by the word that readers sleep on. */
		void *lock = !strncmp(waiter->class, "rwlock", 6) ? &waiter->second->rwlock : waiter->address;

		say("{\"tid\": %d, \"class\": \"%s\", \"address\": \"%p\", \"holder\": %d}\n", waiter->tid,
		    waiter->class, lock, *waiter->holder);
	}
	finished();
	if (!strcmp(argv[1], "apart")) {
		pthread_barrier_wait(&all->over);
		pthread_barrier_wait(&all->ready);
	}
	_exit(0);
}
