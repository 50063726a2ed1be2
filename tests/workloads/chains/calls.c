/* Frames of every shape, in functions that do nothing but call. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include "chains.h"

static volatile int one = 1;

FUNC void nested_3(void) { stop(); }
FUNC void nested_2(void) { nested_3(); }
FUNC void nested_1(void) { nested_2(); }

FUNC void recurse_end(void) { stop(); }
FUNC int recurse(int depth)
{
	if (depth == 1)
		recurse_end();
	else
		return recurse(depth - 1) + one;
	return one;
}

FUNC void large_leaf(char *bytes) { bytes[one] = 1; stop(); }
FUNC int large_frame(void)
{
	char bytes[200 << 10];

	large_leaf(bytes);
	return bytes[one];
}

FUNC void variable_leaf(char *bytes) { bytes[0] = 1; stop(); }
FUNC int variable_frame(int length)
{
	char array[length];
	char *more = alloca(length * 3);

	variable_leaf(array);
	variable_leaf(more);
	return array[0] + more[0];
}

/* An aligned frame, arguments on the stack and alloca: gcc keeps the caller's stack pointer in a register of its own. */
FUNC void aligned_leaf(char *bytes) { bytes[0] = 1; stop(); }
FUNC int aligned_frame(int a, int b, int c, int d, int e, int f, int g, int h)
{
	char bytes[64] __attribute__((aligned(64)));
	char *more = alloca(a * 100);

	aligned_leaf(bytes);
	more[0] = 1;
	return bytes[0] + more[0] + b + c + d + e + f + g + h;
}
FUNC int aligned_twice(void)
{
	char bytes[128] __attribute__((aligned(128)));

	bytes[one] = aligned_frame(one, 2, 3, 4, 5, 6, 7, 8);
	return bytes[one];
}

/* The call is the last instruction: behind it is another function. */
static jmp_buf back;
FUNC __attribute__((noreturn)) void never_returns(void)
{
	stop();
	longjmp(back, 1);
}
FUNC void ends_in_a_call(void) { never_returns(); }
FUNC void comes_behind(void) { __asm__ volatile(""); }

/* Prologue and epilogue are most of it, so samples are in all of their instructions. */
FUNC long saves_registers(long x)
{
	__asm__ volatile("" : "+r"(x) : : SAVED_REGISTERS);
	return x + one;
}
FUNC long aligns(long x)
{
	char bytes[64] __attribute__((aligned(64)));

	__asm__ volatile("" : : "r"(bytes) : "memory");
	return x + one;
}
/* So long that each of the two is met dozens of times, even by a sampler that the machine holds up. */
FUNC long storm(void)
{
	long x = 0;

	for (unsigned long lap = 0; lap < laps * 2; lap++)
		x = aligns(saves_registers(x));
	return x;
}

FUNC void thread_leaf(void) { stop(); }
FUNC void *thread_begin(void *data) { thread_leaf(); return data; }

int main(void)
{
	pthread_t thread;

	begin();
	nested_1();
	recurse(1);
	recurse(30);
	recurse(120);
	large_frame();
	variable_frame(one * 1000);
	aligned_twice();
	if (!setjmp(back))
		ends_in_a_call();
	comes_behind();
	storm();
	if (pthread_create(&thread, NULL, thread_begin, NULL))
		return 1;
	pthread_join(thread, NULL);
	return end();
}
