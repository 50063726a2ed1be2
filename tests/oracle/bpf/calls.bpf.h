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

#define CALLS 512

/* Calls that are logged by events of their own: by number. */
__u8 enters_apart[CALLS] = {};
__u8 returns_apart[CALLS] = {};

static __always_inline bool is_apart(const __u8 *apart, __u64 number, bool compat)
{
	return !compat && number < CALLS && apart[number & (CALLS - 1)];
}

static __always_inline void note_call(struct task_struct *task, __u64 number, bool compat, const __u64 *args)
{
	struct event event = {
		.kind = CALL,
		.thread = task->pid,
		.detail = (__u32)number | (compat ? COMPAT : 0),
		.object = args[0],
		.other = args[1],
		.second = args[4],
	};

	if (is_meant(task))
		note(&event);
}

static __always_inline void note_return(struct task_struct *task, long ret)
{
	struct event event = {
		.kind = RETURN,
		.thread = task->pid,
		.detail = ret,
	};

	if (is_meant(task))
		note(&event);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(log_call, struct pt_regs *regs, long number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool compat = is_compat_call(task);
	struct call_arguments arguments;

	if (is_apart(enters_apart, number, compat))
		return 0;
	arguments_of(regs, compat, &arguments);
	note_call(task, number, compat, arguments.args);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(log_return, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!is_apart(returns_apart, syscall_number(regs), is_compat_call(task)))
		note_return(task, ret);
	return 0;
}

/* Programs on one call's event run in the order in which they were attached to it, wherever perf's own probe stands among those of
 * all calls: before this log, if somebody else had an eye on that call already. A preemption between the two is time that one has
 * and the other lacks.
 */
struct call_entry {
	__u64 common;
	__u32 number;
	/* Since 6.7 nobody writes it. */
	__u32 hole;
	__u64 args[6];
};

SEC("?tp/syscalls/sys_enter_futex")
int log_call_apart(struct call_entry *ctx)
{
	__u64 args[6] = { ctx->args[0], ctx->args[1], ctx->args[2], ctx->args[3], ctx->args[4], ctx->args[5] };

	note_call(bpf_get_current_task_btf(), ctx->number, false, args);
	/* Nobody else is to be kept from it. */
	return 1;
}

struct call_exit {
	__u64 common;
	__u32 number;
	__u32 hole;
	__s64 ret;
};

SEC("?tp/syscalls/sys_exit_futex")
int log_return_apart(struct call_exit *ctx)
{
	note_return(bpf_get_current_task_btf(), ctx->ret);
	return 1;
}

#endif
