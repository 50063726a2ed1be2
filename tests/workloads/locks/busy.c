/* Threads whose waits would look like circles if they were put together from different moments. */
#include <pthread.h>
static pthread_mutex_t locks[3] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static void *work(void *argument)
{
	for (unsigned long i = (long)argument;; i++) {
		pthread_mutex_lock(&locks[i % 3]);
		usleep(20);
		pthread_mutex_unlock(&locks[i % 3]);
	}
}
static void *alone(void *argument)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	for (;;) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}
int main(int argc, char **argv)
{
	pthread_t thread;

	ready();
	for (long i = 0; i < 6; i++)
		pthread_create(&thread, NULL, argc > 1 ? alone : work, (void *)i);
	_exit(finished());
}
