/* Chains through signal handlers, to what they interrupted. */
#define _GNU_SOURCE
#include <sys/time.h>
#include <ucontext.h>
#include "chains.h"

static volatile int interrupted;
static char alternate_stack[1 << 16];

FUNC void plain_leaf(void) { stop(); }
FUNC void plain_handler(int number) { if (number) plain_leaf(); }

FUNC void alternate_leaf(void) { stop(); }
FUNC void alternate_handler(int number) { if (number) alternate_leaf(); }

FUNC void timer_leaf(void) { stop(); }
FUNC void timer_handler(int number) { timer_leaf(); interrupted = number; }

FUNC void inner_handler(int number) { if (number) stop(); }
FUNC void outer_handler(int number)
{
	system_call(SYS_tgkill, getpid(), getpid(), SIGRTMIN + 1);
	interrupted = number;
}

FUNC void fault_handler(int number, siginfo_t *info, void *data)
{
	ucontext_t *context = data;

	if (info->si_signo == number)
		stop();
	CONTEXT_PC(context) += FAULT_BYTES;
}

/* Its first instruction faults, and what is before it belongs to another function. */
__asm__(".text\n.globl before_it\n.type before_it, @function\n"
	"before_it: .cfi_startproc\nret\n.cfi_endproc\n.size before_it, .-before_it\n"
	".globl faults_at_once\n.type faults_at_once, @function\n"
	"faults_at_once: .cfi_startproc\n" FAULTS "\nret\n.cfi_endproc\n.size faults_at_once, .-faults_at_once\n");
void faults_at_once(void);

FUNC long signals_itself(int number) { return system_call(SYS_tgkill, getpid(), getpid(), number); }
FUNC void raises_plain(void) { signals_itself(SIGUSR1); }
FUNC void raises_alternate(void) { signals_itself(SIGUSR2); }
FUNC void raises_nested(void) { signals_itself(SIGRTMIN); }
FUNC void raises_fault(void) { faults_at_once(); }

/* It has the timer set itself: the signal finds it here even if that comes at once. */
FUNC void computes(struct itimerval *soon)
{
	system_call(SYS_setitimer, ITIMER_REAL, (long)soon, 0);
	while (!interrupted)
		__asm__ volatile("");
}
FUNC void is_interrupted(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 3000 } };

	computes(&soon);
}

static void handle(int number, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	if (sigaction(number, &action, NULL))
		exit(1);
}

int main(void)
{
	stack_t stack = { .ss_sp = alternate_stack, .ss_size = sizeof(alternate_stack) };

	handle(SIGUSR1, plain_handler, 0);
	handle(SIGUSR2, alternate_handler, SA_ONSTACK);
	handle(SIGALRM, timer_handler, 0);
	handle(SIGRTMIN, outer_handler, SA_ONSTACK);
	handle(SIGRTMIN + 1, inner_handler, 0);
	handle(SIGILL, (void (*)(int))(void *)fault_handler, SA_SIGINFO);
	if (sigaltstack(&stack, NULL))
		return 1;
	begin();
	raises_plain();
	raises_alternate();
	raises_nested();
	raises_fault();
	interrupted = 0;
	is_interrupted();
	return end();
}
