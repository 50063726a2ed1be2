/* SPDX-License-Identifier: MIT */
/* futex.bpf.h: the hooks behind waits on futexes.
 *
 * The return of a futex call is seen through its own tracepoint: that costs other system calls 42 ns each on the test
 * machine, where a program on every return (sys_exit) costs 87 and one on every entry 72 more. 32-bit calls have no
 * tracepoints of their own; user space attaches `compat_returns` when a program makes them.
 */
#ifndef __FUTEX_BPF_H__
#define __FUTEX_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "futex_open.bpf.h"
#include "futex_waits.bpf.h"

/* What tracepoints of the group `syscalls` hand over; their format file says so. */
struct syscall_return {
	__u64 common;
	__u64 number;
	__s64 ret;
};

/* A futex call of any kind returns. Most are wakes, which concern nobody's wait. */
static __always_inline int call_returned(long ret)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	struct futex_call call;

	if (member && member->futex.phase != FUTEX_IDLE) {
		futex_returned(&member->futex, task, ret);
		return 0;
	}
	futex_call_of(task, true, &call);
	if (is_futex_requeue(&call))
		note_requeue(&call, task, ret);
	else if (member && is_futex_wait(&call))
		futex_raced(&member->futex, &call, task, ret);
	return 0;
}

SEC("?tp/syscalls/sys_exit_futex")
int futex_exit(struct syscall_return *ctx)
{
	return call_returned(ctx->ret);
}

SEC("?tp/syscalls/sys_exit_futex_waitv")
int futex_waitv_exit(struct syscall_return *ctx)
{
	return call_returned(ctx->ret);
}

SEC("?tp/syscalls/sys_exit_futex_wait")
int futex_wait_exit(struct syscall_return *ctx)
{
	return call_returned(ctx->ret);
}

SEC("?tp/syscalls/sys_exit_futex_requeue")
int futex_requeue_exit(struct syscall_return *ctx)
{
	return call_returned(ctx->ret);
}

/* Takes up timed waits that a stop or a debugger interrupted. */
SEC("?tp/syscalls/sys_exit_restart_syscall")
int futex_restart_exit(struct syscall_return *ctx)
{
	return call_returned(ctx->ret);
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(compat_returns, struct pt_regs *regs, long ret)
{
	struct task_struct *task = current_task();
	__u32 number;

	if (!is_compat_call(task))
		return 0;
	number = syscall_number_here(regs);
	if (number != SYSCALL_IA32_RESTART && futex_kind(number, true) == FUTEX_NONE)
		return 0;
	return call_returned(ret);
}

static __always_inline void futex_task_switched(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	struct member *member = member_of(prev);

	if (member)
		futex_switched_out(&member->futex, prev, preempt, state);
	member = member_of(next);
	if (member)
		futex_switched_in(&member->futex);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(futex_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	futex_task_switched(preempt, prev, next, prev_state);
	return 0;
}

/* fa2c3254d7cf (5.18) added prev_state. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(futex_sched_switch_pre_5_18, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	futex_task_switched(preempt, prev, next, task_state(prev));
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(futex_sched_waking, struct task_struct *task)
{
	struct member *member = member_of(task);

	if (member)
		futex_woken(ctx, &member->futex, &config.releasers);
	return 0;
}

#endif
