/* A process that has locks of a file, a semaphore, or a token, and a child that times its waits for them. The parent times for how
 * long it knows the child to be asleep.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/stat.h>
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
static int file, set, event, token[2];

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

static void take_event(void)
{
	uint64_t one;

	if (read(event, &one, sizeof(one)) != sizeof(one))
		_exit(7);
}

static void give_event(void)
{
	uint64_t one = 1;

	if (write(event, &one, sizeof(one)) != sizeof(one))
		_exit(7);
}

/* Make does it like this. */
static void take_token(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(token[0], &set);
	if (pselect(token[0] + 1, &set, NULL, NULL, NULL, NULL) != 1)
		_exit(7);
	take_byte(token[0]);
}

static void give_token(void)
{
	put_byte(token[1], 'x');
}

/* Until the child sleeps, and not for orders, which it reads from `from`. */
static void await_sleep(pid_t child, int from)
{
	char name[64], text[128], orders[32];
	ssize_t length;
	int fd;

	snprintf(orders, sizeof(orders), "%d 0x%x ", SYS_read, from);

	snprintf(name, sizeof(name), "/proc/%d/syscall", child);
	do {
		pause_ns(200000);
		fd = open(name, O_RDONLY);
		length = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[length > 0 ? length : 0] = 0;
	} while (text[0] < '0' || text[0] > '9' || !strncmp(text, orders, strlen(orders)));
}

/* The child's part: each wait by its clock, and another lock that nobody has, which is no wait. */
static void wait_for(const struct lock *lock, int from, int to)
{
	long long total_ns = 0;

	/* An open file of its own, for a lock of one's own. */
	file = open(path, O_RDWR);
	put_byte(to, 'x');
	for (int round = 0; round < ROUNDS; round++) {
		take_byte(from);
		long long begin_ns = clock_ns(CLOCK_MONOTONIC);
		lock->take();
		total_ns += clock_ns(CLOCK_MONOTONIC) - begin_ns;
		lock->give();
		lock->take();
		lock->give();
		put_byte(to, 'x');
	}
	if (write(to, &total_ns, sizeof(total_ns)) != sizeof(total_ns))
		_exit(9);
	/* It stays until its parent has ended, for whoever looks at it. */
	take_byte(from);
	_exit(0);
}

/* The eventfd's number in the kernel. */
static int event_id(void)
{
	char name[64], line[64];
	FILE *info;
	int id = -1;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", event);
	info = fopen(name, "r");
	while (info && fgets(line, sizeof(line), info))
		sscanf(line, "eventfd-id: %d", &id);
	fclose(info);
	return id;
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
	take_byte(from_child[0]);
	for (int round = 0; round < ROUNDS; round++) {
		lock->take();
		put_byte(to_child[1], 'x');
		await_sleep(child, to_child[0]);
		asleep_ns -= clock_ns(CLOCK_MONOTONIC);
		pause_ns(HOLD_NS);
		asleep_ns += clock_ns(CLOCK_MONOTONIC);
		lock->give();
		take_byte(from_child[0]);
	}
	if (read(from_child[0], &waited_ns, sizeof(waited_ns)) != sizeof(waited_ns))
		_exit(9);
	say("{\"class\": \"%s\", \"waiter\": %d, \"holder\": %d, \"rounds\": %d, \"asleep_ns\": %lld, \"waited_ns\": %lld}\n",
	    lock->name, child, getpid(), ROUNDS, asleep_ns, waited_ns);
	put_byte(to_child[1], 'x');
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct lock locks[] = {
		{ "flock", take_flock, give_flock },
		{ "posix", take_posix, give_posix },
		{ "ofd", take_ofd, give_ofd },
		{ "sysv-sem", take_set, give_set },
		{ "eventfd", take_event, give_event },
		{ "jobserver", take_token, give_token },
	};
	struct stat pipe_of;
	int key;

	path = argv[1];
	file = open(path, O_RDWR | O_CREAT, 0600);
	/* One whose owner was killed may have the key. */
	for (key = 0x5e7 + getpid(); (set = semget(key, 1, IPC_CREAT | IPC_EXCL | 0600)) < 0 && errno == EEXIST; key++)
		;
	event = eventfd(1, EFD_SEMAPHORE);
	if (argc < 2 || file < 0 || set < 0 || event < 0 || pipe(token) || fstat(token[0], &pipe_of))
		return 6;
	change(1);
	give_token();
	ready();
	for (unsigned i = 0; i < sizeof(locks) / sizeof(*locks); i++)
		play(&locks[i]);
	say("{\"set\": %d, \"key\": %d, \"event\": %d, \"pipe\": %llu}\n", set, key, event_id(), (unsigned long long)pipe_of.st_ino);
	finished();
	semctl(set, 0, IPC_RMID);
	return 0;
}
