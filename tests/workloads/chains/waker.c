/* One thread waits for what another one writes. */
#include <pthread.h>
#include "chains.h"

static int pipes[2];

FUNC void waits(void)
{
	char c;

	system_call(SYS_read, pipes[0], (long)&c, 1);
}
FUNC void *reader(void *data)
{
	for (int i = 0; i < 23; i++)
		waits();
	return data;
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
		wakes();
	}
	pthread_join(thread, NULL);
	return end();
}
