/* A thread that serves a client, by TCP or by a Unix socket, and asks a database: 50 requests 17 ms apart, 3 ms for an answer. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REQUESTS 50

static int listening, database[2];
static struct sockaddr_storage address;
static socklen_t length = sizeof(address);

static void put_byte(int to)
{
	if (write(to, "x", 1) != 1)
		_exit(3);
}

/* What came, 0 at the end. */
static int get_byte(int from)
{
	char byte;

	return read(from, &byte, 1);
}

static void *answers(void *nothing)
{
	prctl(PR_SET_NAME, "database");
	while (get_byte(database[1]) == 1) {
		pause_ns(3000000);
		put_byte(database[1]);
	}
	return nothing;
}

__attribute__((noinline)) static void handle(void)
{
	WITH_FRAME;
	put_byte(database[0]);
	get_byte(database[0]);
	WITH_FRAME;
}

static void *serves(void *nothing)
{
	prctl(PR_SET_NAME, "server");
	int client = accept(listening, NULL, NULL);

	while (get_byte(client) == 1) {
		handle();
		put_byte(client);
	}
	close(client);
	return nothing;
}

static void *asks(void *nothing)
{
	prctl(PR_SET_NAME, "client");
	int server = socket(address.ss_family, SOCK_STREAM, 0);

	if (connect(server, (struct sockaddr *)&address, length))
		_exit(4);
	for (int i = 0; i < REQUESTS; i++) {
		pause_ns(17000000);
		put_byte(server);
		get_byte(server);
	}
	close(server);
	return nothing;
}

/* Of its own network, or without a name in a file system. */
static void listen_by(const char *kind)
{
	if (!strcmp(kind, "tcp"))
		*(struct sockaddr_in *)&address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	else
		address.ss_family = AF_UNIX;
	listening = socket(address.ss_family, SOCK_STREAM, 0);
	if (bind(listening, (struct sockaddr *)&address,
		 address.ss_family == AF_UNIX ? sizeof(sa_family_t) : sizeof(struct sockaddr_in)) ||
	    listen(listening, 5) || getsockname(listening, (struct sockaddr *)&address, &length) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, database))
		_exit(5);
}

int main(int argc, char **argv)
{
	void *(*run[])(void *) = { serves, answers, asks };
	pthread_t threads[3];

	listen_by(argv[1]);
	ready();
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, run[i], NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[2], NULL);
	shutdown(database[0], SHUT_WR);
	pthread_join(threads[1], NULL);
	return finished();
}
