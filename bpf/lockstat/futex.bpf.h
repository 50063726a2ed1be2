/* SPDX-License-Identifier: MIT */
/* futex.bpf.h: the hooks behind waits on futexes.
 *
 * Futex calls are seen through their own tracepoints: that costs other system calls 42 ns each on the test machine, where a
 * program on every return (sys_exit) costs 87 and one on every entry 72 more. 32-bit calls have no tracepoints of their
 * own; user space attaches `compat_returns` and `compat_entries` when a program makes them.
 */
#ifndef __FUTEX_BPF_H__
#define __FUTEX_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "backend_waits.bpf.h"
#include "futex_open.bpf.h"
#include "futex_waits.bpf.h"
#include "maps.bpf.h"
#include "neighbours.bpf.h"
#include "sleeps.bpf.h"

/* Records that tracepoints of the groups `syscalls` and `raw_syscalls` hand over; their format files say so. Numbers are as long
 * as a pointer there, but since 6.7 nobody writes the second half.
 */
struct syscall_entry {
	__u64 common;
	__u32 number;
	__u32 hole;
	__u64 args[6];
};

struct syscall_return {
	__u64 common;
	__u32 number;
	__u32 hole;
	__s64 ret;
};

/* A futex call of any kind returns. Most are wakes, which concern nobody's wait. */
static __always_inline void call_returned(__u64 number, long ret)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	struct futex_call call;
	__u32 tid_at;

	if (member && is_in_wait(&member->futex)) {
		futex_returned(&member->futex, task, ret);
		return;
	}
	/* Most calls of fcntl(2) ask for no lock, and decoding one takes 200 ns. */
	if (is_lock_call(number))
		return;
	futex_call_of(task, true, &call);
	if (is_futex_requeue(&call))
		note_requeue(&call, task, ret);
	else if (member && is_futex_wait(&call)) {
		if (member->futex.phase == FUTEX_PAUSED) {
			if (gil_of(task, &call, &tid_at) == member->futex.gil)
				return;
			end_paused(&member->futex, task);
		}
		futex_raced(&member->futex, &call, task, ret, event_of(&member->backend, task));
	} else if (member && ret != -ERESTART_RESTARTBLOCK)
		/* It had been taken up again, and is over. */
		member->futex.restarts = 0;
}

static __always_inline bool is_compat_futex(__u32 number)
{
	return is_compat_call(current_task()) &&
	       (number == SYSCALL_COMPAT_RESTART || futex_kind(number, true) != FUTEX_NONE);
}

static __always_inline void call_entered(bool may_be_pi)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);

	if (member && (may_be_pi || is_in_wait(&member->futex)))
		futex_entered(&member->futex, task);
}

/* Most calls begin no wait that could be seen here already, and should not pay for those that do. */
SEC("?tp/syscalls/sys_enter_futex")
int futex_entry(struct syscall_entry *ctx)
{
	call_entered(is_pi_operation(ctx->args[1] & FUTEX_OPERATION_BITS));
	return PASS_ON;
}

/* Attached to the return of every call that waits for futexes, restart_syscall(2) among them, which takes up timed waits that
 * a stop or a debugger interrupted. One program, because each takes the verifier long.
 */
SEC("?tp/syscalls/sys_exit_futex")
int futex_exit(struct syscall_return *ctx)
{
	call_returned(ctx->number, ctx->ret);
	return PASS_ON;
}

/* 0 → futex_exit */
MAP(PROG_ARRAY, futex_returns, __u32, __u32, 1);

SEC("?tp/raw_syscalls/sys_exit")
int compat_returns(struct syscall_return *ctx)
{
	if (is_compat_futex(ctx->number))
		bpf_tail_call(ctx, &futex_returns, 0);
	return PASS_ON;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(compat_entries, struct pt_regs *regs, long number)
{
	if (is_compat_futex(number))
		call_entered(true);
	return 0;
}

#endif
