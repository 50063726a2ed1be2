/* A thread that serves a client, by TCP or by a Unix socket, and asks a database: 50 requests 17 ms apart, 3 ms for an answer. */
#include <linux/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REQUESTS 50

static int to_server, to_client, database[2];
static volatile pid_t server_tid, client_tid, database_tid;

static void put_byte(int to)
{
	if (write(to, "x", 1) != 1)
		_exit(3);
}

/* Bytes that came; 0 at the end. */
static int get_byte(int from)
{
	char byte;

	return read(from, &byte, 1);
}

/* Until the thread, late or not, sleeps for its byte: it waits for each. */
static void await_reader(volatile pid_t *tid)
{
	while (call_of(*tid) != SYS_read)
		pause_ns(200000);
}

static void *answers(void *nothing)
{
	prctl(PR_SET_NAME, "database");
	database_tid = syscall(SYS_gettid);
	while (get_byte(database[1]) == 1) {
		await_reader(&server_tid);
		await_reader(&client_tid);
		pause_ns(3000000);
		put_byte(database[1]);
	}
	return nothing;
}

__attribute__((noinline)) static void handle(void)
{
	WITH_FRAME;
	await_reader(&database_tid);
	put_byte(database[0]);
	get_byte(database[0]);
	WITH_FRAME;
}

static void *serves(void *nothing)
{
	prctl(PR_SET_NAME, "server");
	server_tid = syscall(SYS_gettid);
	while (get_byte(to_client) == 1) {
		handle();
		put_byte(to_client);
	}
	close(to_client);
	return nothing;
}

static void *asks(void *nothing)
{
	prctl(PR_SET_NAME, "client");
	client_tid = syscall(SYS_gettid);
	for (int i = 0; i < REQUESTS; i++) {
		pause_ns(17000000);
		await_reader(&server_tid);
		put_byte(to_server);
		get_byte(to_server);
	}
	close(to_server);
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
