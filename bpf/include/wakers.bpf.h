/* SPDX-License-Identifier: MIT */
/* wakers.bpf.h: who woke a task, interned like a stack. */
#ifndef __WAKERS_BPF_H__
#define __WAKERS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "stacks.bpf.h"

/* Five "addresses": thread, name (2) and the ids of two stacks. */
static __always_inline __u64 intern_waker(__u32 slot, struct stack_scratch *scratch, __u32 tgid, __u32 tid,
					  const __u8 comm[16], __u64 kernel, __u64 user)
{
	struct stack_record *stack = &scratch->record;

	stack->addresses[0] = tid;
	__builtin_memcpy(&stack->addresses[1], comm, 16);
	stack->addresses[3] = kernel;
	stack->addresses[4] = user;
	stack->depth = 5;
	stack->kind = STACK_WAKER;
	stack->end = 0;
	stack->tgid = tgid;
	/* Beside the thread's ID: that of a first thread is the same, and one would take the other out of the hash. */
	return intern_stack(slot, (__u64)tgid << 32, false);
}

/* The task that is current, with the stacks that `wanted` does not exclude. */
static __always_inline __u64 waker_record(void *ctx, __u32 slot, struct stack_scratch *scratch,
					  const volatile struct stack_config *wanted)
{
	struct task_struct *waker = current_task();
	__u32 tgid = tgid_of(targets.pid_namespace, waker);
	__u64 kernel = 0, user = 0;
	__u8 comm[16];

	if (!wanted->no_kernel)
		kernel = kernel_stack(ctx, slot, scratch);
	if (!wanted->no_user)
		user = user_stack(slot, scratch, waker, tgid);
	bpf_get_current_comm(comm, sizeof(comm));
	return intern_waker(slot, scratch, tgid, tid_of(targets.pid_namespace, waker), comm, kernel, user);
}

#endif
