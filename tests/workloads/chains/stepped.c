/* A process that its parent stops before the first instruction of its signal handler. */
#define _GNU_SOURCE
#include <sys/ptrace.h>
#include <sys/wait.h>
#include "chains.h"

FUNC void comes_before(void) { __asm__ volatile(""); }
FUNC void handler(int number) { __asm__ volatile("" : : "r"(number)); }
FUNC long raises(void) { return system_call(SYS_tgkill, getpid(), getpid(), SIGUSR1); }

FUNC int child(void)
{
	signal(SIGUSR1, handler);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 1;
	begin();
	comes_before();
	raises();
	return end();
}

int main(void)
{
	struct timespec pause = { .tv_nsec = 10 * SLEEP_NS };
	int status, tracee = fork();

	if (!tracee)
		return child();
	while (waitpid(tracee, &status, 0) == tracee && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGUSR1) {
			ptrace(PTRACE_SINGLESTEP, tracee, NULL, (void *)SIGUSR1);
			continue;
		}
		nanosleep(&pause, NULL);
		ptrace(PTRACE_CONT, tracee, NULL, NULL);
	}
	return status;
}
