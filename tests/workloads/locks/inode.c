/* A thread writes to a file from memory that nobody brings in: it sleeps with the inode's rwsem. Others want that too. A
 * second file is being appended to in peace. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
static int file;
static char *missing;
static int tids[3];
static void *write_it(void *argument)
{
	long which = (long)argument;

	__atomic_store_n(&tids[which], gettid(), __ATOMIC_SEQ_CST);
	if (which > 0) {
		char text[] = "x";
		pwrite(file, text, 1, 0);
	} else
		pwrite(file, missing, 4096, 0);
	return NULL;
}
int main(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero;
	struct uffd_msg message;
	pthread_t threads[3];
	int faults;

	ready();
	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	file = open(argv[1], O_RDWR | O_CREAT, 0600);
	missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (long)missing;
	range.range.len = 4096;
	if (faults < 0 || file < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		return 7;
	pthread_create(&threads[0], NULL, write_it, (void *)0);
	/* The fault has come: the writer sleeps, and has the inode. */
	if (read(faults, &message, sizeof(message)) != sizeof(message))
		return 6;
	for (long i = 1; i < 3; i++) {
		pthread_create(&threads[i], NULL, write_it, (void *)i);
		await_state(&tids[i], 'D');
	}
	say("{\"holder\": %d, \"waiters\": [%d, %d]}\n", tids[0], tids[1], tids[2]);
	finished();
	zero.range = range.range;
	zero.mode = 0;
	ioctl(faults, UFFDIO_ZEROPAGE, &zero);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
