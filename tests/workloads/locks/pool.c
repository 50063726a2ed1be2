/* Servers that take the only connection to a database, and workers that hardly have work: both wait for condition variables.
 *
 * However late a thread has a CPU, the connection is held until all others with a request sleep for it, and no job is queued before
 * every worker sleeps again.
 */
#include <poll.h>
#include <pthread.h>

#define SERVERS 3
#define WORKERS 4
#define REQUESTS 40

#ifdef SYS_poll
#define POLLS SYS_poll
#else
#define POLLS SYS_ppoll
#endif

static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER, queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER, queued = PTHREAD_COND_INITIALIZER;
static int connections = 1, jobs, requests[SERVERS][2], answers[2];
static volatile int servers[SERVERS], workers[WORKERS], is_unserved[SERVERS];

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

/* Until all servers that are to be served sleep for the connection. */
static void await_queue(void)
{
	for (int i = 0; i < SERVERS; i++)
		if (is_unserved[i])
			await_call(&servers[i], SYS_futex);
}

__attribute__((noinline)) static void handle(long which)
{
	take_connection();
	is_unserved[which] = 0;
	await_queue();
	/* The database's answer. */
	pause_ns(2000000);
	return_connection();
	WITH_FRAME;
}

/* It polls where it has nothing to do: in the loop that calls handle(). */
static void *serve(void *number)
{
	long which = (long)number;
	struct pollfd request = { .fd = requests[which][0], .events = POLLIN };
	char byte;

	prctl(PR_SET_NAME, "server");
	servers[which] = gettid();
	while (poll(&request, 1, -1) == 1 && read(request.fd, &byte, 1) == 1) {
		handle(which);
		put_byte(answers[1], 'x');
	}
	return NULL;
}

static void *work(void *number)
{
	prctl(PR_SET_NAME, "worker");
	workers[(long)number] = gettid();
	pthread_mutex_lock(&queue);
	for (;;) {
		while (!jobs)
			pthread_cond_wait(&queued, &queue);
		jobs--;
	}
	return number;
}

static void ask_all(void)
{
	for (int i = 0; i < SERVERS; i++)
		is_unserved[i] = 1;
	for (int i = 0; i < SERVERS; i++)
		put_byte(requests[i][1], 'x');
	for (int i = 0; i < SERVERS; i++)
		take_byte(answers[0]);
}

static void queue_job(void)
{
	pthread_mutex_lock(&queue);
	jobs++;
	pthread_cond_signal(&queued);
	pthread_mutex_unlock(&queue);
	while (__atomic_load_n(&jobs, __ATOMIC_SEQ_CST))
		usleep(200);
	for (int i = 0; i < WORKERS; i++)
		await_call(&workers[i], SYS_futex);
}

/* One after another: nobody else has the mutex meanwhile. */
static void start_all(void)
{
	pthread_t thread;

	for (long i = 0; i < SERVERS; i++) {
		if (pipe(requests[i]))
			_exit(9);
		pthread_create(&thread, NULL, serve, (void *)i);
		await_call(&servers[i], POLLS);
	}
	for (long i = 0; i < WORKERS; i++) {
		pthread_create(&thread, NULL, work, (void *)i);
		await_call(&workers[i], SYS_futex);
	}
}

int main(int argc, char **argv)
{
	int served = argc > 1 ? atoi(argv[1]) : REQUESTS;

	if (pipe(answers))
		_exit(9);
	start_all();
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
