/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* futex_registers.h: registers of threads in futex calls; in front of a tool's programs. They lie behind the task. */
#ifndef __HOST_FUTEX_REGISTERS_H__
#define __HOST_FUTEX_REGISTERS_H__

#include "parameters.h"

static void *host_registers_of(const struct task_struct *task)
{
	return (void *)(task + 1);
}

#undef bpf_task_pt_regs
#define bpf_task_pt_regs(task) host_registers_of(task)

/* Bytes of a task with its registers. */
#define HOST_TASK_BYTES (sizeof(struct task_struct) + sizeof(struct pt_regs) + 6 * sizeof(__u64))

static __u64 host_ids_of_current(void)
{
	const struct task_struct *task = host_current();

	return (__u64)task->tgid << 32 | task->pid;
}

#define bpf_get_current_pid_tgid() host_ids_of_current()
#define bpf_tail_call(ctx, map, index) futex_exit((void *)(ctx))

#endif
