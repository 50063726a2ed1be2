/* Two processes that wait for each other: the parent for a mutex of the child's, the child for a POSIX lock of the parent's on a file.
 * A third one waits for the child's flock of that file, whatever becomes of the others.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>

struct shared {
	pthread_mutex_t mutex;
	int tids[3];
};

static struct shared *shared;
static const char *path;

static void lock_posix(int file)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(file, F_SETLKW, &all))
		_exit(6);
}

/* Asleep in its last call when its number is there and it sleeps. */
static pid_t child(int at, void (*work)(int file))
{
	pid_t parent = getpid(), pid = fork();

	if (pid) {
		await_state(&shared->tids[at], 'S');
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	work(opened(path));
	_exit(0);
}

static void has_mutex_wants_posix(int file)
{
	pthread_mutex_lock(&shared->mutex);
	flock(file, LOCK_EX);
	__atomic_store_n(&shared->tids[1], gettid(), __ATOMIC_SEQ_CST);
	lock_posix(file);
}

static void wants_flock(int file)
{
	__atomic_store_n(&shared->tids[2], gettid(), __ATOMIC_SEQ_CST);
	flock(file, LOCK_EX);
}

static void *wants_mutex(void *unused)
{
	__atomic_store_n(&shared->tids[0], gettid(), __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&shared->mutex);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t between;
	pid_t first, second;

	path = argv[1];
	ready();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&between);
	pthread_mutexattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &between);
	lock_posix(opened(path));
	first = child(1, has_mutex_wants_posix);
	second = child(2, wants_flock);
	say("{\"parent\":%d,\"child\":%d,\"third\":%d}\n", getpid(), first, second);
	/* Nobody comes back from here. */
	say("done\n");
	wants_mutex(NULL);
	return 0;
}
