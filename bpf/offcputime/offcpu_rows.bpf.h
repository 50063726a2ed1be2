/* SPDX-License-Identifier: MIT */
/* offcpu_rows.bpf.h: intervals that are over, by thread, stacks and wait. */
#ifndef __OFFCPU_ROWS_BPF_H__
#define __OFFCPU_ROWS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "kernel_stack_cache.bpf.h"
#include "maps.bpf.h"
#include "offcpu_cycles.bpf.h"
#include "offcpu_lengths.bpf.h"
#include "offcpu_phases.bpf.h"
#include "offcpu_row.bpf.h"
#include "stacks.bpf.h"
#include "waits.bpf.h"

#define MAX_ROWS 65536

/* (thread, stacks, wait) → time */
MAP(HASH, offcpu_time, struct offcputime_key, struct offcputime_value, MAX_ROWS);

/* Walks of the switch and of the waker may nest on one CPU: an interrupt wakes somebody during the first. */
enum scratch_slot {
	SCRATCH_SWITCH,
	SCRATCH_WAKER,
};

static __always_inline void add_row(struct member *member, const struct offcputime_key *key, __u64 off_ns, __u64 runqueue_ns)
{
	struct offcputime_value first = {};
	struct offcputime_value *value = bpf_map_lookup_elem(&offcpu_time, key);

	if (!value) {
		if (config.details)
			first.id = new_row_id();
		bpf_map_update_elem(&offcpu_time, key, &first, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&offcpu_time, key);
	}
	if (!value) {
		__sync_fetch_and_add(&losses.rows_full, 1);
		__sync_fetch_and_add(&losses.rows_full_ns, off_ns);
		member->lost_ns += off_ns;
		return;
	}
	/* A row belongs to one thread, which is on one CPU: nobody else adds to it. */
	value->blocked_ns += off_ns - runqueue_ns;
	value->runqueue_ns += runqueue_ns;
	value->count++;
	if (config.details)
		add_lengths(value->id, key->tgid, off_ns - runqueue_ns, runqueue_ns);
	tell_wait(member, key, value, off_ns, runqueue_ns);
}

static __always_inline void report(struct member *member, struct task_struct *task, __u64 kernel, __u64 user)
{
	struct offcputime_key key = {
		.tgid = tgid_of(targets.pid_namespace, task),
		.tid = tid_of(targets.pid_namespace, task),
		.kernel_stack = kernel,
		.user_stack = user,
		.wait_flags = member->wait_flags,
		.is_open = member->is_open,
		.call = call_of(member, task, true),
	};

	if (config.wakers && !(member->wait_flags & WAIT_RUNNABLE))
		key.waker = member->waker;
	bpf_core_read(&key.comm, sizeof(key.comm), &task->comm);
	if (walk_on_leaving && !user)
		key.is_known = is_told(member, task);
	add_row(member, &key, member->ended_off_ns, member->ended_runqueue_ns);
	member->ended_off_ns = 0;
}

static __always_inline __u64 syscall_of(struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);

	return task->flags & PF_KTHREAD ? -1 : syscall_number(regs);
}

/* Of a task that is about to run. Walked from outside, it has neither the scheduler's frames nor ours. */
static __always_inline __u64 resumed_kernel_stack(struct task_struct *task)
{
	struct stack_scratch *scratch = scratch_at(SCRATCH_SWITCH);
	struct stack_record *stack;
	__u64 syscall, print, id;
	long bytes;

	if (!scratch || config.stacks.no_kernel)
		return 0;
	stack = &scratch->record;
	syscall = syscall_of(task);
	print = kernel_stack_print(task, syscall);
	id = walked_stack(print);
	if (id)
		return id;
	bytes = bpf_get_task_stack(task, stack->addresses, sizeof(stack->addresses), 0);
	id = intern_kernel_stack(SCRATCH_SWITCH, scratch, bytes);
	if (id && syscall < SYSCALLS_MAX)
		learn_dispatcher(stack->addresses, stack->depth);
	remember_walk(print, id);
	return id;
}

#endif
