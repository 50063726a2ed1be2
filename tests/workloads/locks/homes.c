/* An event loop that also asks a database: 50 turns of 17 ms for events and 3 ms for an answer. It says when it waited for events. */
#include <poll.h>
#include <sys/epoll.h>

#define TURNS 50

static int tid;
static long long begins[TURNS], ends[TURNS];
static int answers[2];

__attribute__((noinline)) static void await_answer(void)
{
	struct pollfd one = { .fd = answers[0], .events = POLLIN };

	poll(&one, 1, 3);
}

__attribute__((noinline)) static void handle(void)
{
	await_answer();
}

static void *loop(void *nothing)
{
	int events = epoll_create1(0);
	struct epoll_event event;

	prctl(PR_SET_NAME, "loop");
	tid = syscall(SYS_gettid);
	for (int i = 0; i < TURNS; i++) {
		begins[i] = clock_ns(CLOCK_MONOTONIC);
		epoll_wait(events, &event, 1, 17);
		ends[i] = clock_ns(CLOCK_MONOTONIC);
		handle();
	}
	return nothing;
}

int main(void)
{
	pthread_t thread;

	if (pipe(answers))
		_exit(3);
	ready();
	pthread_create(&thread, NULL, loop, NULL);
	pthread_join(thread, NULL);
	for (int i = 0; i < TURNS; i++)
		say("{\"tid\": %d, \"start_ns\": %lld, \"end_ns\": %lld}\n", tid, begins[i], ends[i]);
	return finished();
}
