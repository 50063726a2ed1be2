/* SPDX-License-Identifier: MIT */
/* stall_stacks.bpf.h: where in their code tasks lose time, and where others cost it them.
 *
 * As everywhere, a stack is walked when it is known to be reported: the kernel part of a wait when it is over, the user
 * part at the end of __schedule() in the thread's own context (sched_exit_tp, Linux 6.18), before that kernel at
 * switch-out. Waits that are open at the end of an interval have a kernel part only.
 */
#ifndef __STALL_STACKS_BPF_H__
#define __STALL_STACKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "ids.bpf.h"
#include "maps.bpf.h"
#include "rows.bpf.h"
#include "stack_limit.bpf.h"
#include "stacks.bpf.h"
#include "stall_phases.bpf.h"

enum stack_role {
	ROLE_VICTIM = 0,
	ROLE_CULPRIT = 1,
};

struct stall_stack {
	__u64 kernel_stack;
	__u64 user_stack;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u32 epoch;
	__u8 resource;
	__u8 role;
	__u8 pad[2];
};

/* stack → ns lost or caused, or I/Os submitted */
MAP(HASH, stall_stacks, struct stall_stack, __u64, 32768);

/* 0 or 1: what is recorded now goes there; user space reads the other one. */
__u32 epoch = 0;
__u64 stall_stacks_full = 0;
__u64 stall_stacks_busy = 0;

static __always_inline void describe_stack(struct stall_stack *key, struct task_struct *task, enum stack_role role)
{
	key->tgid = tgid_of(targets.pid_namespace, task);
	key->tid = tid_of(targets.pid_namespace, task);
	key->epoch = epoch & 1;
	key->role = role;
	bpf_core_read(&key->comm, sizeof(key->comm), &task->comm);
}

static __always_inline void add_weight(struct stall_stack *key, __u64 weight)
{
	if (weight)
		ADD_TO_ROW(&stall_stacks, key, weight, stall_stacks_full);
}

/* Both parts of the stack of `task`, which is current, or none of them where the budget is low. `with_kernel`: it has not been walked yet. */
static __always_inline bool walk_current(void *ctx, struct stall_stack *key, struct task_struct *task, bool with_kernel)
{
	struct stack_scratch *scratch;
	__u32 slot;

	if (leaves_out_stack())
		return true;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&stall_stacks_busy, 1);
		return false;
	}
	if (with_kernel)
		key->kernel_stack = kernel_stack(ctx, slot, scratch);
	key->user_stack = user_stack(slot, scratch, task, key->tgid);
	release_scratch(scratch);
	return true;
}

/* The kernel part of a task that is off its CPU. */
static __always_inline __u64 walk_other(struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u64 id = 0;
	__u32 slot;
	long bytes;

	if (leaves_out_stack())
		return 0;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&stall_stacks_busy, 1);
		return 0;
	}
	bytes = bpf_get_task_stack(task, scratch->record.addresses, sizeof(scratch->record.addresses), 0);
	id = intern_kernel_stack(slot, scratch, bytes);
	release_scratch(scratch);
	return id;
}

static __always_inline bool has_pending(struct member *member)
{
	return member->pending_ns[ON_CPU] || member->pending_ns[ON_MEMORY] || member->pending_ns[ON_IO];
}

static __always_inline void report_pending(struct member *member, struct stall_stack *key)
{
	for (int i = 0; i < STALLS; i++) {
		key->resource = i;
		add_weight(key, member->pending_ns[i]);
		member->pending_ns[i] = 0;
	}
}

/* A wait is over. The thread is not current yet. */
static __always_inline void resumed(struct member *member, struct task_struct *task)
{
	struct stall_stack key = {};

	if (!has_pending(member))
		return;
	member->kernel_stack = member->never_ran ? 0 : walk_other(task);
	if (config.walk_on_exit && !member->never_ran)
		return;
	describe_stack(&key, task, ROLE_VICTIM);
	key.kernel_stack = member->kernel_stack;
	key.user_stack = member->never_ran ? 0 : member->user_stack;
	report_pending(member, &key);
}

/* Where the task that is leaving the CPU is, and others waited behind it. */
static __always_inline void report_culprit(void *ctx, struct member *member, struct task_struct *task, __u64 caused_ns)
{
	struct stall_stack key = {};

	if (!caused_ns && config.walk_on_exit)
		return;
	describe_stack(&key, task, ROLE_CULPRIT);
	if (!walk_current(ctx, &key, task, caused_ns > 0))
		return;
	member->user_stack = key.user_stack;
	key.resource = ON_CPU;
	add_weight(&key, caused_ns);
}

SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct task_struct *task = current_task();
	struct member *member = is_switch ? member_of(task) : NULL;
	struct stall_stack key = {};

	if (!member || !has_pending(member))
		return 0;
	describe_stack(&key, task, ROLE_VICTIM);
	key.kernel_stack = member->kernel_stack;
	if (walk_current(ctx, &key, task, false))
		report_pending(member, &key);
	return 0;
}

#endif
