/* Threads that begin together and are still there at the end, all asleep. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>

static int begun, over;
static int waiting, done;

static void sleep_until(int *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void wake_all(int *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Each thread's first and last act. */
static void begin(void)
{
	__atomic_add_fetch(&waiting, 1, __ATOMIC_RELEASE);
	sleep_until(&begun);
}

static void end(void)
{
	__atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
	sleep_until(&over);
}

static void await_count(int *count, int wanted)
{
	while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < wanted)
		pause_ns(1000000);
}

/* Many small stacks in one mapping: a process may have 65,530. */
static void start_threads(int count, void *(*routine)(void *), void *args, size_t size)
{
	size_t bytes = 1 << 15;
	char *stacks = mmap(NULL, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (int i = 0; i < count; i++) {
		pthread_attr_t attributes;
		pthread_t thread;

		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stacks + i * bytes, bytes);
		if (pthread_create(&thread, &attributes, routine, (char *)args + i * size))
			_exit(5);
	}
	await_count(&waiting, count);
}

/* Times that a thread was put on a CPU. */
static long long slices(void)
{
	return schedstat(2);
}

/* Times that the main thread was put on a CPU while it waited for all others. */
static long long looks;

static void await_all(int threads)
{
	long long before = slices();

	await_count(&done, threads);
	looks = slices() - before;
}
