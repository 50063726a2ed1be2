/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* calls.bpf.h: which system calls threads make, and what these return. */
#ifndef __CALLS_BPF_H__
#define __CALLS_BPF_H__

#include "log.bpf.h"
#include <bpf/bpf_tracing.h>
#include "registers.bpf.h"

enum {
	/* `thread` calls. `detail`: the call's number, or COMPAT and that of a 32-bit program; `object`, `other` and `second`:
	 * its first, second and fifth argument.
	 */
	CALL = 3,
	/* `thread` returns from one with `detail`. */
	RETURN = 4,
};

#define COMPAT (1ULL << 32)

SEC("?tp_btf/sys_enter")
int BPF_PROG(log_call, struct pt_regs *regs, long number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool compat = is_compat_call(task);
	struct call_arguments arguments;
	struct event event = {
		.kind = CALL,
		.thread = task->pid,
		.detail = (__u32)number | (compat ? COMPAT : 0),
	};

	if (!is_meant(task))
		return 0;
	arguments_of(regs, compat, &arguments);
	event.object = arguments.args[0];
	event.other = arguments.args[1];
	event.second = arguments.args[4];
	note(&event);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(log_return, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct event event = {
		.kind = RETURN,
		.thread = task->pid,
		.detail = ret,
	};

	if (is_meant(task))
		note(&event);
	return 0;
}

#endif
