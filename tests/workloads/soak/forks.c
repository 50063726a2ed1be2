/* argv[1] processes, 16 at a time, each with one sleep; every tenth executes this program anew. */
#include <sys/wait.h>

static struct account {
	long long slices, cpu_ns;
} *account;

static void live(void)
{
	struct rusage usage;

	pause_ns(10000);
	for (volatile int i = 0; i < 20000; i++)
		;
	getrusage(RUSAGE_SELF, &usage);
	/* On a CPU once more often than off it. */
	__atomic_add_fetch(&account->slices, usage.ru_nvcsw + usage.ru_nivcsw + 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&account->cpu_ns, clock_ns(CLOCK_PROCESS_CPUTIME_ID), __ATOMIC_RELAXED);
	_exit(0);
}

static struct account *shared(int fd)
{
	return mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int main(int argc, char **argv)
{
	int fd, count, alive = 0;

	if (argc == 3) {
		account = shared(atoi(argv[2]));
		live();
	}
	fd = memfd_create("account", 0);
	if (ftruncate(fd, sizeof(*account)))
		return 3;
	account = shared(fd);
	count = atoi(argv[1]);
	char number[16];
	snprintf(number, sizeof(number), "%d", fd);
	ready();
	long long start = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 4;
		if (pid == 0) {
			if (i % 10 == 0)
				execl(argv[0], argv[0], "-", number, NULL);
			live();
		}
		if (++alive == 16 && wait(NULL) > 0)
			alive--;
	}
	while (wait(NULL) > 0)
		;
	say("{\"wall_ns\": %lld, \"done\": %d, \"slices\": %lld, \"cpu_ns\": %lld}\n",
	    clock_ns(CLOCK_MONOTONIC) - start, count, account->slices, account->cpu_ns);
	return finished();
}
