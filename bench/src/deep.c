/* Calls getppid for ever from so many frames deep; every frame has a frame pointer and call frame information. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long sink;

__attribute__((noinline)) static int deep(int frames)
{
	volatile int left = frames;

	while (left == 0)
		sink += syscall(SYS_getppid);
	return deep(left - 1) + left;
}

int main(int count, char **arguments)
{
	return count > 1 ? deep(atoi(arguments[1])) : 2;
}
