/* On a frozen file system a store into a file's memory waits; who changes that memory's mapping waits for it, with mmap_lock; and
 * who maps anything waits for that. */
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
static char *memory;
static int tids[3];
static void *store(void *unused)
{
	__atomic_store_n(&tids[0], gettid(), __ATOMIC_SEQ_CST);
	memory[0] = 1;
	return NULL;
}
static void *protect(void *unused)
{
	__atomic_store_n(&tids[1], gettid(), __ATOMIC_SEQ_CST);
	/* Still writable, so that the store ends well, whoever comes first. */
	mprotect(memory, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
	return NULL;
}
static void *map(void *unused)
{
	__atomic_store_n(&tids[2], gettid(), __ATOMIC_SEQ_CST);
	/* Memory for a look at a thread is there by then. */
	await_state(&tids[2], 'R');
	await_state(&tids[1], 'D');
	mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return NULL;
}
int main(int argc, char **argv)
{
	int directory = open(argv[1], O_RDONLY), file = openat(directory, "file", O_RDWR | O_CREAT, 0600);
	pthread_t threads[3];

	ready();
	if (ftruncate(file, 4096))
		return 7;
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	(void)*(volatile char *)memory;
	if (ioctl(directory, FIFREEZE, 0))
		return 6;
	/* Made before the lock is taken: a thread needs a stack. */
	pthread_create(&threads[2], NULL, map, NULL);
	pthread_create(&threads[0], NULL, store, NULL);
	await_state(&tids[0], 'D');
	pthread_create(&threads[1], NULL, protect, NULL);
	await_state(&tids[1], 'D');
	await_state(&tids[2], 'D');
	say("{\"holder\": %d, \"waiter\": %d}\n", tids[1], tids[2]);
	finished();
	ioctl(directory, FITHAW, 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
