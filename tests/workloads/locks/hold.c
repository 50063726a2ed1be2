/* Holds a lock of the kernel's, for as long as another thread likes: see tests/live/lockstat_kernel.rs. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
static char mode;
static int file, uffd, holder_tid, waiter_tid, hogged;
static char *page;
static sem_t burst;
static cpu_set_t allowed;
static volatile int bursts;
static pthread_barrier_t step;

/* Has the CPU that the waiter must have, for 10 ms whenever it is told to, before anybody else. */
static void *hog(void *unused)
{
	struct sched_param first = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		_exit(8);
	for (;;) {
		sem_wait(&burst);
		bursts++;
		busy_ns(CLOCK_MONOTONIC, 10000000);
	}
	return unused;
}

/* On the first CPU, or on all but that one. */
static void run_on_first_cpu(int only)
{
	cpu_set_t set = allowed;
	int cpu = 0;

	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	if (only) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
	} else {
		CPU_CLR(cpu, &set);
	}
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(8);
}

static void *hold(void *unused)
{
	__atomic_store_n(&holder_tid, gettid(), __ATOMIC_SEQ_CST);
	for (;;) {
		pthread_barrier_wait(&step);
		if ((mode == 'p' ? read(file, page, 4096) : write(file, page, 4096)) != 4096)
			_exit(2);
		pthread_barrier_wait(&step);
	}
}

static void *wait_for_it(void *unused)
{
	char byte = 0;
	pthread_t thread;

	waiter_tid = gettid();
	if (hogged) {
		run_on_first_cpu(1);
		pthread_create(&thread, NULL, hog, NULL);
	}
	for (;;) {
		pthread_barrier_wait(&step);
		/* The holder's fault: from here on it has the lock, and soon it sleeps. */
		struct uffd_msg fault;
		if (read(uffd, &fault, sizeof(fault)) != sizeof(fault))
			_exit(3);
		await_call(&holder_tid, mode == 'p' ? SYS_read : SYS_write);
		if (mode == 'f')
			pwrite(file, &byte, 1, 0);
		else if (mode == 'p')
			lseek(file, 0, SEEK_SET);
		else if (write(file, &byte, 1) != 1)
			_exit(7);
		pthread_barrier_wait(&step);
	}
}

int main(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	char zeros[4096] = "";
	pthread_t thread;
	int rounds = atoi(argv[3]);

	mode = argv[1][0];
	hogged = argv[1][1] == 'h';
	file = open(argv[2], O_CREAT | O_RDWR, 0600);
	if (write(file, zeros, 4096) != 4096 || lseek(file, 0, SEEK_SET))
		return 4;
	if (mode == 'w') {
		int ends[2];

		if (pipe(ends))
			return 4;
		file = ends[1];
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_register here = { .range = { (long)page, 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	if (ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &here))
		return 5;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (hogged)
		run_on_first_cpu(0);
	pthread_barrier_init(&step, NULL, 3);
	sem_init(&burst, 0, 0);
	pthread_create(&thread, NULL, hold, NULL);
	pthread_create(&thread, NULL, wait_for_it, NULL);
	ready();
	for (int i = 0; i < rounds || rounds == 0; i++) {
		struct uffdio_zeropage give = { .range = { (long)page, 4096 } };

		pthread_barrier_wait(&step);
		await_state(&waiter_tid, 'D');
		pause_ns(50000000);
		if (rounds == 0)
			break;
		if (hogged) {
			sem_post(&burst);
			while (bursts <= i)
				sched_yield();
		}
		if (ioctl(uffd, UFFDIO_ZEROPAGE, &give))
			return 6;
		pthread_barrier_wait(&step);
		madvise(page, 4096, MADV_DONTNEED);
	}
	struct stat about;
	fstat(file, &about);
	say("{\"holder\": %d, \"waiter\": %d, \"inode\": %ld}\n", holder_tid, waiter_tid,
	    (long)about.st_ino);
	finished();
	/* The holder still sleeps in the kernel; exit_group ends that. */
	_exit(0);
}
