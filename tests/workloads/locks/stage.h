/* Rounds in which one thread holds a lock and another is seen to sleep on it: for the programs beside this file. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

#define ROUNDS 7
#define HOLD_NS 20000000

struct stage {
	const char *name;
	const char *class;
	/* What the waiter does, and what the holder does before and after. */
	void (*wait)(void *lock);
	void (*hold)(void *lock);
	void (*release)(void *lock);
	void *lock;
	int rounds;
	/* The wait ends without the holder's doing. */
	int unattended;
};

static volatile pid_t waiter_tid;
static int to_waiter[2], to_holder[2];
/* What all rounds took, what of that was over when the wait was moved elsewhere, and when the present one began. */
static volatile long long waited_ns, moved_ns, began_ns;

static long call_futex(volatile uint32_t *word, int operation, uint32_t value, const struct timespec *timeout, uint32_t *word2,
		       uint32_t value3)
{
	return syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

static void send_byte(int *pipe)
{
	if (write(pipe[1], "x", 1) != 1)
		_exit(9);
}

static void await_byte(int *pipe)
{
	char c;

	if (read(pipe[0], &c, 1) != 1)
		_exit(9);
}

/* The number of the system call that a thread sleeps in; -1 while it runs. */
static long call_of(pid_t tid)
{
	char path[64], text[256];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0 || text[0] < '0' || text[0] > '9')
		return -1;
	text[length] = 0;
	return atol(text);
}

static int is_futex_call(long number)
{
	/* futex and its 64-bit time variant, of x86-64 and i386; futex_waitv; futex_wait. */
	return number == SYS_futex || number == 422 || number == 449 || number == 455;
}

static void await_sleep(pid_t tid)
{
	struct timespec pause = { .tv_nsec = 200000 };

	while (!is_futex_call(call_of(tid)))
		nanosleep(&pause, NULL);
}

static void hold_on(void)
{
	struct timespec hold = { .tv_nsec = HOLD_NS };

	nanosleep(&hold, NULL);
}

static void *waiter(void *argument)
{
	struct stage *stage = argument;

	waiter_tid = syscall(SYS_gettid);
	send_byte(to_holder);
	for (int round = 0; round < stage->rounds; round++) {
		await_byte(to_waiter);
		began_ns = clock_ns(CLOCK_MONOTONIC);
		stage->wait(stage->lock);
		waited_ns += clock_ns(CLOCK_MONOTONIC) - began_ns;
		send_byte(to_holder);
	}
	return NULL;
}

/* Runs all rounds; says what they took by the waiter's own clock. */
static void play(struct stage *stage)
{
	pthread_t thread;

	waited_ns = moved_ns = 0;
	if (pipe(to_waiter) || pipe(to_holder) || pthread_create(&thread, NULL, waiter, stage))
		_exit(8);
	await_byte(to_holder);
	for (int round = 0; round < stage->rounds; round++) {
		if (stage->hold)
			stage->hold(stage->lock);
		send_byte(to_waiter);
		if (stage->unattended) {
			await_byte(to_holder);
		} else {
			await_sleep(waiter_tid);
			hold_on();
		}
		if (stage->release)
			stage->release(stage->lock);
		if (!stage->unattended)
			await_byte(to_holder);
	}
	say("{\"name\": \"%s\", \"class\": \"%s\", \"rounds\": %d, \"waited_ns\": %lld, \"moved_ns\": %lld, "
	    "\"waiter\": %d, \"holder\": %d}\n",
	    stage->name, stage->class, stage->rounds, waited_ns, moved_ns, waiter_tid, (int)syscall(SYS_gettid));
	pthread_join(thread, NULL);
}
