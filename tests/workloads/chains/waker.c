/* One thread waits for what another one writes, when it sees the first one asleep. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include "chains.h"

static int pipes[2];
static volatile int reader_tid, begun;

FUNC void waits(void)
{
	char c;

	system_call(SYS_read, pipes[0], (long)&c, 1);
}
FUNC void *reader(void *data)
{
	reader_tid = gettid();
	for (int i = 0; i < 23; i++) {
		begun = i + 1;
		waits();
	}
	return data;
}
/* The kernel names the system call only of who sleeps there. */
static void await_reader(int round)
{
	struct timespec moment = { .tv_nsec = SLEEP_NS / 10 };
	char path[64], text[64];
	int file, length;

	do {
		nanosleep(&moment, NULL);
		snprintf(path, sizeof(path), "/proc/%d/syscall", reader_tid);
		file = open(path, O_RDONLY);
		length = read(file, text, sizeof(text) - 1);
		close(file);
		text[length > 0 ? length : 0] = 0;
	} while (begun <= round || text[0] < '0' || text[0] > '9' || atol(text) != SYS_read);
}
FUNC void writes(void) { system_call(SYS_write, pipes[1], (long)"", 1); }
FUNC void wakes(void) { writes(); }

int main(void)
{
	struct timespec pause = { .tv_nsec = SLEEP_NS };
	pthread_t thread;

	if (pipe(pipes))
		return 1;
	begin();
	if (pthread_create(&thread, NULL, reader, NULL))
		return 1;
	for (int i = 0; i < 23; i++) {
		nanosleep(&pause, NULL);
		await_reader(i);
		wakes();
	}
	pthread_join(thread, NULL);
	return end();
}
