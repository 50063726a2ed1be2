/* SPDX-License-Identifier: MIT */
/* pause_calls.bpf.h: what a thread waits for in the system call that it sleeps in. */
#ifndef __PAUSE_CALLS_BPF_H__
#define __PAUSE_CALLS_BPF_H__

#include "vmlinux.h"
#include "meanwhile.bpf.h"
#include "polls.bpf.h"
#include "registers.bpf.h"

/* The task leaves its CPU to sleep, for no lock that is known. */
static __always_inline enum meanwhile pause_in_call(struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	__u64 number = saved_syscall_number(regs);
	struct call_arguments call;

	if (is_compat_call(task))
		return MEANWHILE_OTHERS;
	switch (number) {
	case SYSCALL_NANOSLEEP:
	case SYSCALL_CLOCK_NANOSLEEP:
		return MEANWHILE_ASLEEP;
	case SYSCALL_FSYNC:
	case SYSCALL_FDATASYNC:
	case SYSCALL_SYNC_FILE_RANGE:
	case SYSCALL_SYNCFS:
	case SYSCALL_SYNC:
	case SYSCALL_MSYNC:
		return MEANWHILE_DISK;
	}
	arguments_of(regs, false, &call);
	/* There is nothing to poll: Python up to 3.10 sleeps so. */
	if ((is_select(number) && !(__u32)call.args[0]) || (is_poll(number) && !(__u32)call.args[1]))
		return MEANWHILE_ASLEEP;
	return MEANWHILE_OTHERS;
}

#endif
