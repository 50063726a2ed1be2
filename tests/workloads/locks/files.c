/* A process that has locks of a file, or a semaphore of System V, and a child that times its waits for them. The parent times for how
 * long it knows the child to be asleep.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ROUNDS 7
#define HOLD_NS 40000000

struct lock {
	const char *name;
	/* Waits until it is there. */
	void (*take)(void);
	void (*give)(void);
};

static const char *path;
static int file, set;

static void take_flock(void)
{
	if (flock(file, LOCK_EX))
		_exit(7);
}

static void give_flock(void)
{
	flock(file, LOCK_UN);
}

static void fcntl_lock(int command, short type)
{
	/* The holder's range is another one than the waiter's, and both meet. */
	struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = 100, .l_len = 50 };

	if (fcntl(file, command, &range))
		_exit(7);
}

static void take_posix(void)
{
	fcntl_lock(F_SETLKW, F_WRLCK);
}

static void give_posix(void)
{
	fcntl_lock(F_SETLKW, F_UNLCK);
}

static void take_ofd(void)
{
	fcntl_lock(F_OFD_SETLKW, F_WRLCK);
}

static void give_ofd(void)
{
	fcntl_lock(F_OFD_SETLKW, F_UNLCK);
}

static void change(int by)
{
	struct sembuf change = { .sem_num = 0, .sem_op = by };

	if (semop(set, &change, 1))
		_exit(7);
}

static void take_set(void)
{
	change(-1);
}

static void give_set(void)
{
	change(1);
}

static void send_to(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(9);
}

static void await(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(9);
}

/* Until the child sleeps in a call that is not read(2). */
static void await_sleep(pid_t child)
{
	char name[64], text[128];
	ssize_t length;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/syscall", child);
	do {
		pause_ns(200000);
		fd = open(name, O_RDONLY);
		length = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[length > 0 ? length : 0] = 0;
	} while (text[0] < '0' || text[0] > '9' || atol(text) == SYS_read);
}

/* The child's part: each wait by its clock, and another lock that nobody has, which is no wait. */
static void wait_for(const struct lock *lock, int from, int to)
{
	long long total_ns = 0;

	/* An open file of its own, for a lock of one's own. */
	file = open(path, O_RDWR);
	send_to(to);
	for (int round = 0; round < ROUNDS; round++) {
		await(from);
		long long begin_ns = clock_ns(CLOCK_MONOTONIC);
		lock->take();
		total_ns += clock_ns(CLOCK_MONOTONIC) - begin_ns;
		lock->give();
		lock->take();
		lock->give();
		send_to(to);
	}
	if (write(to, &total_ns, sizeof(total_ns)) != sizeof(total_ns))
		_exit(9);
	/* It stays until its parent has ended, for whoever looks at it. */
	await(from);
	_exit(0);
}

static void play(const struct lock *lock)
{
	long long waited_ns, asleep_ns = 0;
	int to_child[2], from_child[2];
	pid_t child;

	if (pipe(to_child) || pipe(from_child))
		_exit(8);
	child = fork();
	if (!child)
		wait_for(lock, to_child[0], from_child[1]);
	await(from_child[0]);
	for (int round = 0; round < ROUNDS; round++) {
		lock->take();
		send_to(to_child[1]);
		await_sleep(child);
		asleep_ns -= clock_ns(CLOCK_MONOTONIC);
		pause_ns(HOLD_NS);
		asleep_ns += clock_ns(CLOCK_MONOTONIC);
		lock->give();
		await(from_child[0]);
	}
	if (read(from_child[0], &waited_ns, sizeof(waited_ns)) != sizeof(waited_ns))
		_exit(9);
	say("{\"class\": \"%s\", \"waiter\": %d, \"holder\": %d, \"rounds\": %d, \"asleep_ns\": %lld, \"waited_ns\": %lld}\n",
	    lock->name, child, getpid(), ROUNDS, asleep_ns, waited_ns);
	send_to(to_child[1]);
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct lock locks[] = {
		{ "flock", take_flock, give_flock },
		{ "posix", take_posix, give_posix },
		{ "ofd", take_ofd, give_ofd },
		{ "sysv-sem", take_set, give_set },
	};

	int key;

	path = argv[1];
	file = open(path, O_RDWR | O_CREAT, 0600);
	/* One whose owner was killed may have the key. */
	for (key = 0x5e7 + getpid(); (set = semget(key, 1, IPC_CREAT | IPC_EXCL | 0600)) < 0 && errno == EEXIST; key++)
		;
	if (argc < 2 || file < 0 || set < 0)
		return 6;
	change(1);
	ready();
	for (unsigned i = 0; i < sizeof(locks) / sizeof(*locks); i++)
		play(&locks[i]);
	say("{\"set\": %d, \"key\": %d}\n", set, key);
	finished();
	semctl(set, 0, IPC_RMID);
	return 0;
}
