/* SPDX-License-Identifier: MIT */
/* queue_open.bpf.h: waits on a run queue that are open when the window ends. */
#ifndef __QUEUE_OPEN_BPF_H__
#define __QUEUE_OPEN_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "members.bpf.h"
#include "queue_clock.bpf.h"
#include "queue_losses.bpf.h"
#include "waits.bpf.h"

/* It waited when the window closed, and user space has not come yet to ask. */
static __always_inline void outlast_window(struct task_struct *next, __u64 now)
{
	struct member *member = member_of(next);

	if (!member)
		return;
	drop_stale_wait(member, next, now);
	if (member->runnable_ns && member->runnable_ns < window_end_ns)
		member->outlasted_ns = window_end_ns - member->runnable_ns;
	member->runnable_ns = 0;
}

/* A task that was preempted within this time may still be on its CPU. */
#define JUST_PREEMPTED_NS 1000000

/* A wait of the window is over, and nobody saw its end. Switches are counted first: a wait that begins meanwhile knows of more. */
static __always_inline bool has_unseen_end(const struct member *member, struct task_struct *task, __u64 now)
{
	__u64 switches = *(volatile __u64 *)&task->nvcsw + *(volatile __u64 *)&task->nivcsw, begun;
	bool runs = is_on_cpu(task);

	barrier();
	begun = *(volatile __u64 *)&member->runnable_ns;
	if (!begun || !in_window(begun))
		return false;
	if (member->switches < switches)
		return true;
	return runs && member->switches == switches && (has_ended(now) || now - begun > JUST_PREEMPTED_NS);
}

/* Run when a window has ended, and while switches are seen: a task that sleeps since a wait is asked what it has missed when it wakes, which
 * may be never.
 */
SEC("iter/task")
int ask_sleepers(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;

	if (!task)
		return 0;
	member = member_of(task);
	if (!member || !has_unseen_end(member, task, bpf_ktime_get_ns()))
		return 0;
	member->runnable_ns = 0;
	count_unseen(member);
	return 0;
}

/* A target that waits when the window closes. */
struct open_wait {
	__u64 wait_ns;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
};

const struct open_wait *unused_open_wait __attribute__((unused));

/* 0: it does not wait. */
static __always_inline __u64 waits_since(struct member *member, struct task_struct *task, __u64 now)
{
	if (!member->runnable_ns || member->runnable_ns >= now)
		return 0;
	/* With windows its turn may have come when nobody looked, and it may be waiting for another. */
	if (is_on_cpu(task) || member->switches != switches_of(task))
		return 0;
	return now - member->runnable_ns;
}

SEC("iter/task")
int list_waiting(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct open_wait open = {};
	struct member *member;
	__u64 now = bpf_ktime_get_ns();

	if (!task)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	open.wait_ns = member->outlasted_ns;
	if (!open.wait_ns)
		open.wait_ns = waits_since(member, task, !in_windows && is_late(now) ? window_end_ns : now);
	if (!open.wait_ns)
		return 0;
	open.tgid = tgid_of(targets.pid_namespace, task);
	open.tid = tid_of(targets.pid_namespace, task);
	bpf_core_read(&open.comm, sizeof(open.comm), &task->comm);
	bpf_seq_write(ctx->meta->seq, &open, sizeof(open));
	return 0;
}

/* A target that was ready before anything was seen of it, and has not run since. */
struct ready_thread {
	__u32 tid;
	/* It has no CPU quota now. */
	__u32 without_quota;
	__u8 comm[16];
};

const struct ready_thread *unused_ready_thread __attribute__((unused));

SEC("iter/task")
int list_ready(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct ready_thread ready = {};
	struct member *member;

	if (!task)
		return 0;
	member = member_of(task);
	if (!member || !member->unseen || is_on_cpu(task) || !is_queued(task) || member->switches != switches_of(task))
		return 0;
	ready.tid = tid_of(targets.pid_namespace, task);
	ready.without_quota = is_throttled(task);
	bpf_core_read(&ready.comm, sizeof(ready.comm), &task->comm);
	bpf_seq_write(ctx->meta->seq, &ready, sizeof(ready));
	return 0;
}

#endif
