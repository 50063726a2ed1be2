/* Code that no table knows, made at run time, that keeps no frame pointer: 0 is in rbp as in an outermost frame. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "chains.h"

/* push %rbp; xor %ebp,%ebp; mov %rdi,%rax; 1: dec %rax; jnz 1b; nop; nop; pop %rbp; ret
 * Without the nops the loop's end would be known by the epilogue behind it.
 */
static const unsigned char code[] = "\x55\x31\xed\x48\x89\xf8\x48\xff\xc8\x75\xfb\x90\x90\x5d\xc3";

int main(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return 1;
	memcpy(page, code, sizeof(code));
	begin();
	for (int i = 0; i < 20; i++)
		((void (*)(unsigned long))page)(laps);
	return end();
}
