/* A thread that serves a client, by TCP or by a Unix socket, and asks a database: 50 requests 17 ms apart, 3 ms for an answer. With "pool"
 * it is one of a pool's, which waits for the client before, and polls its connection, as its client does.
 */
#include <linux/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REQUESTS 50
#ifdef SYS_poll
#define CALL_OF_POLL SYS_poll
#else
#define CALL_OF_POLL SYS_ppoll
#endif

static int to_server, to_client, database[2];
static volatile pid_t server_tid, client_tid, database_tid;
static int is_pool;
/* Number of clients that the pool has had. */
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_more = PTHREAD_COND_INITIALIZER;
static int jobs;

/* Bytes that came; 0 at the end. */
static int get_byte(int from)
{
	char byte;

	return read(from, &byte, 1);
}

/* Until the thread, late or not, sleeps for its byte: it waits for each. */
static void await_in(volatile pid_t *tid, long call)
{
	while (call_of(*tid) != call)
		pause_ns(200000);
}

static void await_reader(volatile pid_t *tid)
{
	await_in(tid, SYS_read);
}

static void put_job(void)
{
	pause_ns(50000000);
	pthread_mutex_lock(&jobs_lock);
	jobs++;
	pthread_mutex_unlock(&jobs_lock);
	/* Else who is woken may have to wait for the lock. */
	pthread_cond_signal(&jobs_more);
}

/* Part of its caller: nearer to the outermost frame than a poll. */
static __attribute__((always_inline)) inline void take_job(int number)
{
	pthread_mutex_lock(&jobs_lock);
	while (jobs < number)
		pthread_cond_wait(&jobs_more, &jobs_lock);
	pthread_mutex_unlock(&jobs_lock);
}

static void *answers(void *nothing)
{
	prctl(PR_SET_NAME, "database");
	database_tid = syscall(SYS_gettid);
	while (get_byte(database[1]) == 1) {
		await_reader(&server_tid);
		await_in(&client_tid, is_pool ? CALL_OF_POLL : SYS_read);
		pause_ns(3000000);
		put_byte(database[1], 'x');
	}
	return nothing;
}

__attribute__((noinline)) static void handle(void)
{
	WITH_FRAME;
	await_reader(&database_tid);
	put_byte(database[0], 'x');
	get_byte(database[0]);
	WITH_FRAME;
}

/* A connection of a pool's is polled first, as by those who have a timeout. Part of its caller. */
static __attribute__((always_inline)) inline int take_byte_from(int connection)
{
	struct pollfd polled = { .fd = connection, .events = POLLIN };

	if (is_pool)
		poll(&polled, 1, 60000);
	return get_byte(connection);
}

/* The client's next request, or its end. */
__attribute__((noinline)) static int next_request(void)
{
	int came;

	WITH_FRAME;
	came = take_byte_from(to_client);
	WITH_FRAME;
	return came;
}

static void *serves(void *nothing)
{
	prctl(PR_SET_NAME, "server");
	server_tid = syscall(SYS_gettid);
	if (is_pool)
		take_job(1);
	while (next_request() == 1) {
		handle();
		put_byte(to_client, 'x');
	}
	close(to_client);
	if (is_pool)
		take_job(2);
	return nothing;
}

static void *asks(void *nothing)
{
	prctl(PR_SET_NAME, "client");
	client_tid = syscall(SYS_gettid);
	if (is_pool)
		put_job();
	for (int i = 0; i < REQUESTS; i++) {
		pause_ns(17000000);
		await_in(&server_tid, is_pool ? CALL_OF_POLL : SYS_read);
		put_byte(to_server, 'x');
		take_byte_from(to_server);
	}
	close(to_server);
	if (is_pool)
		put_job();
	return nothing;
}

/* Both ends of a connection. A wait for it would be one more at the server's outermost frames. */
static void connect_by(const char *kind)
{
	struct sockaddr_in internet = { .sin_family = AF_INET, .sin_addr.s_addr = htobe32(INADDR_LOOPBACK) };
	/* Without a name in a file system: the kernel makes one. */
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	int is_local = !strncmp(kind, "unix", 4);
	struct sockaddr *address = is_local ? (void *)&local : (void *)&internet;
	socklen_t length = is_local ? sizeof(local.sun_family) : sizeof(internet), all = sizeof(local);
	int listening = socket(address->sa_family, SOCK_STREAM, 0);

	if (bind(listening, address, length) || listen(listening, 5) ||
	    getsockname(listening, address, is_local ? &all : &length))
		_exit(4);
	to_server = socket(address->sa_family, SOCK_STREAM, 0);
	/* A client that binds a name of its own before it connects, as those of systemd's sd-bus do. */
	if (!strcmp(kind, "unix-names") && bind(to_server, (void *)&(struct sockaddr_un){ .sun_family = AF_UNIX }, sizeof(sa_family_t)))
		_exit(7);
	if (connect(to_server, address, is_local ? all : length))
		_exit(5);
	to_client = accept(listening, NULL, NULL);
	if (to_client < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, database))
		_exit(6);
}

int main(int argc, char **argv)
{
	void *(*run[])(void *) = { serves, answers, asks };
	pthread_t threads[3];

	is_pool = !strcmp(argv[1], "pool");
	connect_by(argv[1]);
	ready();
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, run[i], NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[2], NULL);
	shutdown(database[0], SHUT_WR);
	pthread_join(threads[1], NULL);
	return finished();
}
