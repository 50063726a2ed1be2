/* Futex calls that no lock of glibc makes, and memory that processes share. */
#include <sys/wait.h>

uint32_t word_plain, word_waitv[2], word_futex2, word_from, word_to, word_stopped, word_counter;

struct waitv_entry {
	uint64_t value, address;
	uint32_t flags, reserved;
};

static void wake(void *word)
{
	++*(volatile uint32_t *)word;
	call_futex(word, 129, 1, NULL, NULL, 0);
}

static void wait_plain(void *word)
{
	call_futex(word, 128, *(volatile uint32_t *)word, NULL, NULL, 0);
}

/* Not private, and a number that happens to be that of somebody else's thread. */
static void wait_counted(void *word)
{
	call_futex(word, 0, *(volatile uint32_t *)word, NULL, NULL, 0);
}

static void wake_counted(void *word)
{
	call_futex(word, 1, 1, NULL, NULL, 0);
}

/* The second of two is woken. */
static void wait_many(void *unused)
{
	struct waitv_entry entries[2];

	for (int i = 0; i < 2; i++)
		entries[i] = (struct waitv_entry){ word_waitv[i], (uintptr_t)&word_waitv[i], 2 | 128, 0 };
	if (syscall(449, entries, 2, 0, NULL, CLOCK_MONOTONIC) != 1)
		_exit(6);
}

static void wake_many(void *unused)
{
	wake(&word_waitv[1]);
}

static void wait_futex2(void *word)
{
	if (syscall(455, word, (long)*(volatile uint32_t *)word, 0xffffffffUL, 2 | 128, NULL, CLOCK_MONOTONIC))
		_exit(5);
}

/* Moved to another word first, then woken there: each has its part of the time. */
static void move_then_wake(void *unused)
{
	if (call_futex(&word_from, 3 | 128, 0, (void *)1, &word_to, 0) != 1)
		_exit(4);
	hold_on();
	if (call_futex(&word_to, 129, 1, NULL, NULL, 0) != 1)
		_exit(3);
}

struct shared {
	pthread_mutex_t mutex;
};

static void hold_mutex(void *lock)
{
	if (pthread_mutex_lock(lock))
		_exit(2);
}

static void release_mutex(void *lock)
{
	if (pthread_mutex_unlock(lock))
		_exit(2);
}

static void take_mutex(void *lock)
{
	hold_mutex(lock);
	release_mutex(lock);
}

/* A mutex in a file that a child has mapped as well, at another address. The child stays until `leave` is written to. */
static void play_shared(const char *path, int leave[2])
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), done[2];
	struct shared *ours, *theirs;
	pthread_mutexattr_t attr;
	pid_t child;

	if (fd < 0 || ftruncate(fd, 8192) || pipe(done) || pipe(leave))
		_exit(8);
	ours = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
	theirs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&ours->mutex, &attr);
	hold_mutex(&ours->mutex);
	child = fork();
	if (!child) {
		waiter_tid = getpid();
		take_mutex(&theirs->mutex);
		put_byte(done[1], 'x');
		take_byte(leave[0]);
		_exit(0);
	}
	char path_of_call[64], text[64] = "";
	do {
		pause_ns(200000);
		snprintf(path_of_call, sizeof(path_of_call), "/proc/%d/syscall", child);
		int call = open(path_of_call, O_RDONLY);
		if (call < 0 || read(call, text, sizeof(text) - 1) < 1)
			_exit(8);
		close(call);
	} while (!is_futex_call(atol(text)) || text[0] == 'r');
	hold_on();
	release_mutex(&ours->mutex);
	take_byte(done[0]);
	say("{\"name\": \"shared\", \"class\": \"mutex\", \"rounds\": 1, \"waiter\": %d, \"holder\": %d}\n", child, getpid());
	unlink(path);
}

int main(int argc, char **argv)
{
	int leave[2];
	struct stage stages[] = {
		{ "word_plain", "unknown", wait_plain, NULL, wake, &word_plain, ROUNDS, 0 },
		{ "word_counter", "unknown", wait_counted, NULL, wake_counted, &word_counter, ROUNDS, 0 },
		{ "word_waitv", "unknown", wait_many, NULL, wake_many, NULL, ROUNDS, 0 },
		{ "word_futex2", "unknown", wait_futex2, NULL, wake, &word_futex2, ROUNDS, 0 },
		{ "word_from", "unknown", wait_plain, NULL, move_then_wake, &word_from, ROUNDS, 0 },
	};

	word_counter = getppid();
	ready();
	for (unsigned i = 0; i < sizeof(stages) / sizeof(*stages); i++)
		play(&stages[i]);
	if (argc > 1)
		play_shared(argv[1], leave);
	finished();
	if (argc > 1) {
		put_byte(leave[1], 'x');
		wait(NULL);
	}
	return 0;
}
