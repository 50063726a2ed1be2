/* A library: calls through the procedure linkage table, a resolver that takes its time, a constructor that does. */
#include "chains.h"

/* Longer than the call: some processors are never interrupted within a few instructions. */
long library_nothing(long x)
{
	for (int i = 0; i < 40; i++)
		__asm__ volatile("" : "+r"(x));
	return x + 1;
}

FUNC void library_leaf(void) { stop(); }
FUNC void library_call(void) { library_leaf(); }
void library_entry(void)
{
	calibrate();
	library_call();
}

static void implementation(void) { __asm__ volatile(""); }
/* The dynamic linker calls it when it binds the name: at the first call, unless it was told to bind all at once. */
void (*resolver(void))(void)
{
	if (getenv("PARK"))
		await_line();
	else
		stop();
	return implementation;
}
void resolved(void) __attribute__((ifunc("resolver")));

FUNC void constructor_leaf(void)
{
	static const char said[] = "{}\ndone\n";
	char c = 0;

	if (getenv("PARK")) {
		await_line();
	} else {
		/* Tables of what was just mapped are there when the next word comes. */
		system_call(SYS_write, 1, (long)said, sizeof(said) - 1);
		while (c != '\n')
			if (system_call(SYS_read, 0, (long)&c, 1) != 1)
				_exit(0);
	}
	for (int i = 0; i < 10; i++)
		stop();
}
__attribute__((constructor)) void constructor(void)
{
	if (getenv("CONSTRUCT"))
		constructor_leaf();
}
