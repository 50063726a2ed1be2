/* Rounds in which one thread holds a lock and another is seen to sleep on it: for the programs beside this file. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/utsname.h>

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
	/* What the holder does while it has the lock, instead of seeing the waiter asleep for a while. */
	void (*attend)(void *lock);
};

static volatile pid_t waiter_tid;
static int to_waiter[2], to_holder[2];
static long call_futex(volatile uint32_t *word, int operation, uint32_t value, const struct timespec *timeout, uint32_t *word2,
		       uint32_t value3)
{
	return syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

/* Reads a file of a thread's directory in /proc as text; empty if there is none. */
static void read_of(pid_t tid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t length = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		length = read(fd, text, size - 1);
		close(fd);
	}
	text[length > 0 ? length : 0] = 0;
}

/* The number of the system call that a thread sleeps in; -1 while it runs. */
static long call_of(pid_t tid)
{
	char text[256];

	read_of(tid, "syscall", text, sizeof(text));
	return text[0] < '0' || text[0] > '9' ? -1 : atol(text);
}

static int is_futex_call(long number)
{
	/* futex and its 64-bit time variant, of x86-64 and i386; futex_waitv; futex_wait. */
	return number == SYS_futex || number == 422 || number == 449 || number == 455;
}

/* Kernels that unwind by ORC say 0 for every thread before bc9bbb81730e (5.16). */
static int has_wchan(void)
{
	struct utsname kernel;
	int major = 0, minor = 0;

	return !uname(&kernel) && sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 5 || (major == 5 && minor >= 16));
}

/* Whether it has left its CPU. Not by `syscall`, whose reader spins until then: a waiter for a PI mutex spins as long as its
 * owner has a CPU, and each would wait for the other.
 */
static int is_asleep(pid_t tid)
{
	char text[256];

	if (has_wchan()) {
		read_of(tid, "wchan", text, sizeof(text));
		return text[0] && text[0] != '0';
	}
	/* Nobody spins there: rtmutex_spin_on_owner came with 5.15. */
	read_of(tid, "status", text, sizeof(text));
	return strstr(text, "State:\tS") != NULL;
}

static void await_sleep(pid_t tid)
{
	/* Twice: it may have slept for something else on its way there. */
	while (!is_asleep(tid) || !is_futex_call(call_of(tid)) || !is_asleep(tid))
		pause_ns(200000);
}

static void hold_on(void)
{
	pause_ns(HOLD_NS);
}

static void *waiter(void *argument)
{
	struct stage *stage = argument;

	waiter_tid = syscall(SYS_gettid);
	put_byte(to_holder[1], 'x');
	for (int round = 0; round < stage->rounds; round++) {
		take_byte(to_waiter[0]);
		stage->wait(stage->lock);
		put_byte(to_holder[1], 'x');
	}
	return NULL;
}

/* Runs all rounds; says who waited, and for whom. */
static void play(struct stage *stage)
{
	pthread_t thread;

	if (stage->rounds > ROUNDS || pipe(to_waiter) || pipe(to_holder) || pthread_create(&thread, NULL, waiter, stage))
		_exit(8);
	take_byte(to_holder[0]);
	for (int round = 0; round < stage->rounds; round++) {
		if (stage->hold)
			stage->hold(stage->lock);
		put_byte(to_waiter[1], 'x');
		if (stage->unattended) {
			take_byte(to_holder[0]);
		} else if (stage->attend) {
			stage->attend(stage->lock);
		} else {
			await_sleep(waiter_tid);
			hold_on();
		}
		if (stage->release)
			stage->release(stage->lock);
		if (!stage->unattended)
			take_byte(to_holder[0]);
	}
	say("{\"name\": \"%s\", \"class\": \"%s\", \"rounds\": %d, \"waiter\": %d, \"holder\": %d}\n", stage->name, stage->class,
	    stage->rounds, waiter_tid, (int)syscall(SYS_gettid));
	pthread_join(thread, NULL);
}
