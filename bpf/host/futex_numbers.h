/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* futex_numbers.h: system calls that threads are in, and threads by their numbers; behind a tool's programs. */
#ifndef __HOST_FUTEX_NUMBERS_H__
#define __HOST_FUTEX_NUMBERS_H__

#include "numbered.h"

/* The register that holds a system call's number. */
static __u32 host_number_at;

static void host_learn_registers(void)
{
	struct pt_regs numbered = host_numbered();

	host_number_at = (__u32)syscall_number_here(&numbered) - 1;
}

/* The numbers that futex(2), exit(2), restart_syscall(2) and exit_group(2) have here. */
enum host_call {
	HOST_FUTEX = 0,
	HOST_NONE = -1,
	HOST_EXIT = -2,
	HOST_RESTART = -3,
	HOST_EXIT_GROUP = -4,
};

static __u64 host_number(__s64 number)
{
	switch (number) {
	case HOST_FUTEX:
		return SYSCALL_FUTEX;
	case HOST_EXIT:
		return SYSCALL_EXIT;
	case HOST_EXIT_GROUP:
		return SYSCALL_EXIT_GROUP;
	case HOST_RESTART:
		return SYSCALL_RESTART;
	default:
		return number;
	}
}

/* enum host_call, or any other call's number. */
void host_calls(struct task_struct *task, __s64 number, const __u64 arguments[6])
{
	struct pt_regs *registers = host_registers_of(task);

	((__u64 *)registers)[host_number_at] = host_number(number);
	__builtin_memcpy(registers + 1, arguments, sizeof(struct call_arguments));
}

#define HOST_THREADS 256

/* Those that live, by their numbers. */
static struct task_struct *host_threads[HOST_THREADS];
static __s64 host_references;

struct task_struct *bpf_task_from_vpid(s32 vpid)
{
	struct task_struct *task = vpid > 0 && vpid < HOST_THREADS ? host_threads[vpid] : NULL;

	host_references += task != NULL;
	return task;
}

struct task_struct *bpf_task_from_pid(s32 pid)
{
	return bpf_task_from_vpid(pid);
}

void bpf_task_release(struct task_struct *task)
{
	host_references--;
}

#endif
