/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* call_number.h: the register that holds a system call's number, whatever the architecture; behind registers.bpf.h. */
#ifndef __HOST_CALL_NUMBER_H__
#define __HOST_CALL_NUMBER_H__

static void host_enter(struct pt_regs *regs, __u64 number)
{
	unsigned long *words = (unsigned long *)regs;

	__builtin_memset(regs, 0, sizeof(*regs));
	for (__u32 at = 0; at < sizeof(*regs) / sizeof(*words); at++) {
		words[at] = 1;
		if (syscall_number(regs)) {
			words[at] = number;
			return;
		}
		words[at] = 0;
	}
}

#endif
