/* An event loop that another thread has turn, by sockets or by eventfds, until it has slept for microseconds 2,000 times. */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define BRISK_TURNS 2000
#define BRISK_NS 100000

/* The loop's ends, and the other thread's. */
static int from_other, to_other, from_loop, to_loop;

/* Nobody asks any more. */
static volatile int is_over;

/* The number of bytes that an eventfd takes. */
static void put(int to)
{
	long long one = 1;

	if (write(to, &one, sizeof(one)) != sizeof(one))
		_exit(3);
}

static void get(int from)
{
	long long one;

	if (read(from, &one, sizeof(one)) != sizeof(one))
		_exit(4);
}

static long sleeps_of_thread(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void *loop(void *nothing)
{
	int events = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };

	prctl(PR_SET_NAME, "loop");
	if (epoll_ctl(events, EPOLL_CTL_ADD, from_other, &event))
		_exit(5);
	for (int brisk = 0; brisk < BRISK_TURNS;) {
		long long begin_ns = clock_ns(CLOCK_MONOTONIC);
		long sleeps = sleeps_of_thread();

		if (epoll_wait(events, &event, 1, -1) != 1)
			_exit(6);
		brisk += clock_ns(CLOCK_MONOTONIC) - begin_ns < BRISK_NS && sleeps_of_thread() > sleeps;
		get(from_other);
		is_over = brisk == BRISK_TURNS;
		put(to_other);
	}
	return nothing;
}

static void *asks(void *nothing)
{
	prctl(PR_SET_NAME, "asks");
	while (!is_over) {
		put(to_loop);
		get(from_loop);
	}
	return nothing;
}

static void connect_by(const char *kind)
{
	int ends[2];

	if (!strcmp(kind, "eventfd")) {
		from_other = to_loop = eventfd(0, 0);
		from_loop = to_other = eventfd(0, 0);
		return;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		_exit(7);
	from_other = to_other = ends[0];
	from_loop = to_loop = ends[1];
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	connect_by(argv[1]);
	run_on(0);
	ready();
	pthread_create(&threads[0], NULL, loop, NULL);
	pthread_create(&threads[1], NULL, asks, NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return finished();
}
