/* A lock made of a condition variable, which a thread waits for as InnoDB's do for rows: in a function without a name, since the program
 * is stripped, that calls one with a name.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t granted = PTHREAD_COND_INITIALIZER;
static volatile long is_granted, waits;

__attribute__((noinline)) void thd_storage_lock_wait(long more)
{
	waits += more;
	WITH_FRAME;
}

__attribute__((noinline)) static void wait_for_grant(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 600;
	pthread_mutex_lock(&mutex);
	while (!is_granted)
		pthread_cond_timedwait(&granted, &mutex, &end);
	is_granted = 0;
	pthread_mutex_unlock(&mutex);
	thd_storage_lock_wait(1);
	WITH_FRAME;
}

__attribute__((noinline)) void lock_row(void *unused)
{
	wait_for_grant();
	WITH_FRAME;
}

static void grant(void *unused)
{
	pthread_mutex_lock(&mutex);
	is_granted = 1;
	pthread_cond_signal(&granted);
	pthread_mutex_unlock(&mutex);
}

int main(void)
{
	struct stage row = { .name = "row", .class = "row-lock", .wait = lock_row, .release = grant, .rounds = ROUNDS };

	ready();
	play(&row);
	return finished();
}
