/* SPDX-License-Identifier: MIT */
/* offcpu_open.bpf.h: phases that are open when the window ends; the longest waits of all are among them. */
#ifndef __OFFCPU_OPEN_BPF_H__
#define __OFFCPU_OPEN_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "offcpu_phases.bpf.h"
#include "stacks.bpf.h"

/* An iterator's words on a target: the phase that is open when the window ends, or the stacks of a wait. */
struct open_phase {
	/* Length of the phase, all of which is inside the window. */
	__u64 phase_ns;
	__u64 lifetime_ns;
	/* Sums of the phases before it. */
	__u64 oncpu_ns;
	__u64 unseen_ns;
	__u64 lost_ns;
	/* The interval off the CPU that is still open, as far as it lies inside the window. */
	__u64 blocked_ns;
	__u64 runqueue_ns;
	__u64 waker;
	/* The user stack, where the thread walked it before it left; 0: it did not. */
	__u64 user_stack;
	/* User registers: the user stack of a task that is not current is walked from outside. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Return address of a function that has not saved it, on arm64; else 0. */
	__u64 lr;
	/* Address that the thread's own data lies around; 0: it is not known. */
	__u64 thread_pointer;
	/* The place where its memory tells what it polls; 0: that is known. And 1 + its switches. */
	struct poll_memory poll;
	__u64 since;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	struct wait_call call;
	__u8 phase;
	__u8 wait_flags;
	/* Within -m, -M and --state. */
	__u8 wanted;
	/* `ip` is any instruction, not the one after a system call. */
	__u8 exact;
	/* Number of kernel addresses that follow, leaf first. */
	__u32 depth;
	/* User space has been told of this wait's stacks. */
	__u32 is_known;
	/* It has run since the window's end, and other stacks of the wait are not to be had. */
	__u32 ran_on;
	/* Counts the thread's waits. */
	__u32 number;
	/* It had never run at the window's end, and has no user stack of the wait. */
	__u32 is_new;
};

struct open_phase_record {
	struct open_phase open;
	__u64 addresses[MAX_STACK_DEPTH];
};

PER_CPU(closing, struct open_phase_record);

/* User space reads the clock, then says that the window has ended: what came between the two has counted already. */
static __always_inline __u64 up_to_end(__u64 from)
{
	return from < window_end_ns ? window_end_ns - from : 0;
}

static __always_inline void describe_interval(struct open_phase *open, struct member *member)
{
	__u64 off_ns;

	if (member->phase == PHASE_BLOCKED) {
		open->blocked_ns = up_to_end(member->off_ns);
	} else {
		open->runqueue_ns = up_to_end(member->runnable_ns);
		open->blocked_ns = open->runqueue_ns ? elapsed(member->off_ns, member->runnable_ns) : up_to_end(member->off_ns);
	}
	off_ns = open->blocked_ns + open->runqueue_ns;
	open->wanted = off_ns >= config.min_ns && off_ns <= config.max_ns && is_wanted_state(member);
}

static __always_inline void describe_wait(struct open_phase *open, struct member *member, struct task_struct *task)
{
	open->waker = member->waker;
	open->wait_flags = member->wait_flags;
	open->number = member->waits;
	open->call = call_of(member, task, false);
}

/* The place at which the walk of the user stack begins. Not inlined: arm64's registers are more than half of a program's stack, which the
 * look at what the thread polls needs, too.
 */
static __noinline void describe_registers(struct open_phase *open, struct member *member, struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct user_regs copied;

	if (member->wait_flags & WAIT_KERNEL_THREAD)
		return;
	bpf_probe_read_kernel(&copied, sizeof(copied), regs);
	open->ip = user_ip(&copied);
	open->sp = user_sp(&copied);
	open->bp = user_fp(&copied);
	open->lr = user_lr(&copied);
	open->thread_pointer = thread_pointer_of(task);
	open->exact = goes_on_anywhere(regs, &copied);
}

/* A target without any event in the window has done all the time what it is doing now. */
static __always_inline void settle_at_end(struct member *member, struct task_struct *task)
{
	if (!is_unsettled(member))
		return;
	settle(member, phase_now(task));
	member->state = task_state(task);
	member->wait_flags = wait_flags_of(task, member->phase != PHASE_BLOCKED, member->state);
}

static __always_inline long open_kernel_stack(struct task_struct *task, struct open_phase_record *record)
{
	long bytes;

	if (config.stacks.no_kernel)
		return 0;
	bytes = bpf_get_task_stack(task, record->addresses, sizeof(record->addresses), 0);
	return bytes > 0 ? bytes : 0;
}

/* Hands out a record whose `addresses` hold `bytes`. */
static __always_inline void write_record(struct bpf_iter__task *ctx, struct open_phase_record *record, __u64 bytes)
{
	/* Never more; written so that 5.10's verifier, which loses bounds through copies, sees it. */
	if (bytes > sizeof(record->addresses))
		bytes = 0;
	record->open.depth = bytes / sizeof(__u64);
	bytes += sizeof(record->open);
	barrier_var(bytes);
	if (bytes <= sizeof(*record))
		bpf_seq_write(ctx->meta->seq, record, bytes);
}

static __always_inline void name_thread(struct open_phase *open, struct task_struct *task)
{
	__builtin_memset(open, 0, sizeof(*open));
	open->tgid = tgid_of(targets.pid_namespace, task);
	open->tid = tid_of(targets.pid_namespace, task);
}

/* The wait that was open at the window's end. */
static __always_inline void describe_open_wait(struct open_phase *open, struct member *member, struct task_struct *task)
{
	describe_wait(open, member, task);
	open->user_stack = walks_on_exit() ? 0 : member->user_stack;
	if (member->ran_after_ns == window_end_ns) {
		open->ran_on = 1;
		open->is_known = member->was_told;
		open->is_new = member->was_new;
		open->call = member->late_call;
	} else {
		/* Its switch to the CPU may not have been seen, nor that it has left again: then its stack is not that of its call. */
		open->ran_on = is_on_cpu(task);
		if (!has_kept_stack(member, task))
			open->user_stack = 0;
		open->is_known = is_told(member, task);
		open->is_new = !switches_of(task);
	}
}

/* User space is to look what it polls, where that was not seen when it left its CPU. */
static __always_inline void describe_poll(struct open_phase *open, struct member *member, struct task_struct *task)
{
	open->since = 1 + switches_of(task);
	if (!(member->wait_flags & (WAIT_RUNNABLE | WAIT_KERNEL_THREAD)) && member->polled_by != open->since)
		unread_poll(task, &open->poll);
}

/* User space is told once of a wait's stacks; returns the bytes of kernel addresses. */
static __always_inline long tell_stacks(struct open_phase_record *record, struct member *member, struct task_struct *task)
{
	member->described = 1 + switches_of(task);
	describe_registers(&record->open, member, task);
	return open_kernel_stack(task, record);
}

/* Run after the window's end: intervals that are still open are the longest of all. */
SEC("iter/task")
int close_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct open_phase_record *record;
	struct member *member;
	__u64 bytes = 0;
	__u32 zero = 0;

	record = bpf_map_lookup_elem(&closing, &zero);
	if (!task || !record || !window_end_ns)
		return 0;
	member = member_of(task);
	if (!member || member->phase == PHASE_DEAD || member->joined_ns >= window_end_ns ||
	    (task_state(task) & TASK_DEAD && is_unsettled(member)))
		return 0;
	settle_at_end(member, task);

	name_thread(&record->open, task);
	bpf_core_read(&record->open.comm, sizeof(record->open.comm), &task->comm);
	record->open.phase = member->phase;
	record->open.phase_ns = up_to_end(member->since_ns);
	record->open.lifetime_ns = up_to_end(member->joined_ns);
	record->open.oncpu_ns = member->oncpu_ns;
	record->open.unseen_ns = member->unseen_ns;
	record->open.lost_ns = member->lost_ns;
	if (member->phase != PHASE_RUNNING) {
		describe_interval(&record->open, member);
		describe_open_wait(&record->open, member, task);
		if (!record->open.is_known && !record->open.ran_on)
			bytes = tell_stacks(record, member, task);
	}
	write_record(ctx, record, bytes);
	return 0;
}

/* Hands out the stacks of a target's wait, unless user space knows them. */
static __always_inline void write_stacks(struct bpf_iter__task *ctx, struct member *member, struct task_struct *task)
{
	struct open_phase_record *record;
	__u32 zero = 0;

	record = bpf_map_lookup_elem(&closing, &zero);
	if (!record || is_on_cpu(task) || is_told(member, task))
		return;
	name_thread(&record->open, task);
	describe_wait(&record->open, member, task);
	describe_poll(&record->open, member, task);
	record->open.user_stack = walks_on_exit() || !has_kept_stack(member, task) ? 0 : member->user_stack;
	write_record(ctx, record, tell_stacks(record, member, task));
}

/* Run between the window's end and close_members, where late events close waits: user space walks the stacks of those that are
 * open. A thread that runs meanwhile may have any stack; its wait was closed by that.
 */
SEC("iter/task")
int waiting_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member = task ? member_of(task) : NULL;

	if (!member || member->phase == PHASE_DEAD || member->joined_ns >= window_end_ns ||
	    member->ran_after_ns == window_end_ns)
		return 0;
	/* Else its wait began after the window. */
	if (is_unsettled(member) || member->phase != PHASE_RUNNING)
		write_stacks(ctx, member, task);
	return 0;
}

/* Run before each window of several: what happened since the one before is not known. Hands out the stacks of waits that
 * began meanwhile.
 */
SEC("iter/task")
int open_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member = task ? member_of(task) : NULL;

	if (!member || member->phase == PHASE_DEAD)
		return 0;
	member->ended_off_ns = member->waker = 0;
	/* Threads that have left their CPUs since the programs were attached have walked their stacks. */
	if (!walk_on_leaving || !has_kept_stack(member, task))
		member->user_stack = 0;
	member->state = task_state(task);
	member->wait_flags = is_on_cpu(task) ? 0 : wait_flags_of(task, is_queued(task), member->state);
	write_stacks(ctx, member, task);
	return 0;
}

#endif
