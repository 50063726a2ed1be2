/* Waits for a line in a place that its first argument names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "chains.h"

void resolved(void);

static volatile char *volatile nowhere;
static char alternate_stack[1 << 16];

FUNC void parks(void) { await_line(); }
FUNC int compare(const void *a, const void *b)
{
	static int compared;

	if (!compared++)
		parks();
	return *(const char *)a - *(const char *)b;
}
FUNC void sorts(void)
{
	char letters[] = "chains";

	qsort(letters, 6, 1, compare);
}
FUNC void handler(int number)
{
	if (number)
		parks();
	_exit(0);
}
FUNC void faults(void)
{
	stack_t stack = { .ss_sp = alternate_stack, .ss_size = sizeof(alternate_stack) };
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	if (sigaltstack(&stack, NULL) || sigaction(SIGSEGV, &action, NULL))
		_exit(1);
	*nowhere = 1;
}
FUNC void opens(const char *path)
{
	setenv("PARK", "1", 1);
	setenv("CONSTRUCT", "1", 1);
	if (!dlopen(path, RTLD_NOW))
		_exit(1);
}
FUNC void binds(void)
{
	setenv("PARK", "1", 1);
	resolved();
}
FUNC void exits(void)
{
	atexit(parks);
	exit(0);
}

int main(int argc, char **argv)
{
	char line[32];

	if (argc != 3)
		return 1;
	snprintf(line, sizeof(line), "ready %d\n", getpid());
	say(line);
	switch (argv[1][0]) {
	case 's': sorts(); break;
	case 'f': faults(); break;
	case 'o': opens(argv[2]); break;
	case 'b': binds(); break;
	case 'e': exits(); break;
	}
	return 0;
}
