/* Servers that take the only connection to a database, and workers that hardly have work: both wait for condition variables. */
#include <poll.h>
#include <pthread.h>

#define SERVERS 3
#define WORKERS 4
#define REQUESTS 40

static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER, queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER, queued = PTHREAD_COND_INITIALIZER;
static int connections = 1, jobs, requests[SERVERS][2], answers[2];

__attribute__((noinline)) static void take_connection(void)
{
	pthread_mutex_lock(&pool);
	while (!connections)
		pthread_cond_wait(&returned, &pool);
	connections--;
	pthread_mutex_unlock(&pool);
	WITH_FRAME;
}

static void return_connection(void)
{
	pthread_mutex_lock(&pool);
	connections++;
	pthread_cond_signal(&returned);
	pthread_mutex_unlock(&pool);
}

__attribute__((noinline)) static void handle(void)
{
	take_connection();
	/* The database's answer. */
	pause_ns(2000000);
	return_connection();
	WITH_FRAME;
}

/* It polls where it has nothing to do: in the loop that calls handle(). */
static void *serve(void *end)
{
	struct pollfd request = { .fd = *(int *)end, .events = POLLIN };
	char byte;

	prctl(PR_SET_NAME, "server");
	while (poll(&request, 1, -1) == 1 && read(request.fd, &byte, 1) == 1) {
		handle();
		if (write(answers[1], "x", 1) != 1)
			_exit(9);
	}
	return NULL;
}

static void *work(void *nothing)
{
	prctl(PR_SET_NAME, "worker");
	pthread_mutex_lock(&queue);
	for (;;) {
		while (!jobs)
			pthread_cond_wait(&queued, &queue);
		jobs--;
	}
	return nothing;
}

static void ask_all(void)
{
	char byte;

	for (int i = 0; i < SERVERS; i++)
		if (write(requests[i][1], "x", 1) != 1)
			_exit(9);
	for (int i = 0; i < SERVERS; i++)
		if (read(answers[0], &byte, 1) != 1)
			_exit(9);
}

static void queue_job(void)
{
	pthread_mutex_lock(&queue);
	jobs++;
	pthread_cond_signal(&queued);
	pthread_mutex_unlock(&queue);
}

int main(int argc, char **argv)
{
	int served = argc > 1 ? atoi(argv[1]) : REQUESTS;
	pthread_t thread;

	if (pipe(answers))
		_exit(9);
	for (int i = 0; i < SERVERS; i++) {
		if (pipe(requests[i]))
			_exit(9);
		pthread_create(&thread, NULL, serve, requests[i]);
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&thread, NULL, work, NULL);
	ready();
	for (int i = 0; i < REQUESTS; i++) {
		pause_ns(5000000);
		if (i >= served)
			continue;
		queue_job();
		ask_all();
	}
	return finished();
}
