/* Two threads of a process that wait for each other: one for the other's mutex, the other for a file that the process has locked as a whole,
 * by another descriptor. The first thread waits for the end of one of them; with an argument it polls instead.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int tids[2];
static const char *path;

static void begin(int at)
{
	__atomic_store_n(&tids[at], gettid(), __ATOMIC_SEQ_CST);
}

static void *has_file_wants_mutex(void *unused)
{
	flock(opened(path), LOCK_EX);
	begin(0);
	while (!__atomic_load_n(&tids[1], __ATOMIC_SEQ_CST))
		usleep(100);
	pthread_mutex_lock(&mutex);
	return NULL;
}

static void *has_mutex_wants_file(void *unused)
{
	while (!__atomic_load_n(&tids[0], __ATOMIC_SEQ_CST))
		usleep(100);
	pthread_mutex_lock(&mutex);
	begin(1);
	flock(opened(path), LOCK_EX);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t first, second;

	path = argv[1];
	ready();
	pthread_create(&first, NULL, has_file_wants_mutex, NULL);
	pthread_create(&second, NULL, has_mutex_wants_file, NULL);
	await_call(&tids[0], SYS_futex);
	await_call(&tids[1], SYS_flock);
	say("{\"mutex\":%d,\"file\":%d}\n", tids[0], tids[1]);
	/* Nobody comes back from here. */
	say("done\n");
	if (argc > 2)
		poll(NULL, 0, -1);
	pthread_join(first, NULL);
	return 0;
}
