/* SPDX-License-Identifier: MIT */
/* members.bpf.h: per-task state of the targets, kept from each task's appearance to its end.
 *
 * Whoever has an entry in `members` is a target: the hot path asks no more than that. Entries are made in process
 * context only (the seeding iterator, fork, rename), never under a run-queue lock, where allocation may deadlock.
 * The tool defines `struct member` before it includes this file, `member_joined` and `member_left` after.
 *
 * Where an entry is kept is the business of per_task.bpf.h.
 */
#ifndef __MEMBERS_BPF_H__
#define __MEMBERS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "per_task.bpf.h"
#include "targets.bpf.h"
#include "window.bpf.h"

/* Grows when processes change cgroup: user space seeds again. */
__u64 cgroup_moves = 0;
/* Targets that got no state: memory was short. */
__u64 members_lost = 0;

enum member_origin {
	/* Found by the iterator: what it does is learnt from its first event. */
	MEMBER_FOUND,
	/* Just forked, not yet on a run queue. */
	MEMBER_FORKED,
	/* Took a matching name, or is `-- COMMAND` at its exec; it may be running. */
	MEMBER_RENAMED,
};

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin);
static __always_inline void member_left(struct member *member, struct task_struct *task);

static __always_inline void join(struct task_struct *task, enum member_origin origin)
{
	struct member *member;

	/* A task that has just been made has no state yet: what is found at its address was left by another, whose end was
	 * hidden from us.
	 */
	if (!(members_in_hash && origin == MEMBER_FORKED) && member_of(task))
		return;
	member = new_member(task);
	if (member)
		member_joined(member, task, origin);
	else
		__sync_fetch_and_add(&members_lost, 1);
}

static __always_inline void leave(struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member)
		return;
	member_left(member, task);
	delete_member(task);
}

SEC("iter/task")
int seed_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	if (is_target(task))
		join(task, MEMBER_FOUND);
	else
		/* It has moved to another cgroup. */
		leave(task);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	target_forked(parent, child);
	if (is_target(child))
		join(child, MEMBER_FORKED);
	else if (members_in_hash)
		/* Left by another at its address. */
		delete_member(child);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	forget_exited(task);
	return 0;
}

/* Fires with the new name in place. */
SEC("?tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	if (target_executed(task) && is_target(task))
		join(task, MEMBER_RENAMED);
	return 0;
}

/* Fires before the name changes, at exec too. */
SEC("?tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	char name[16] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	if (is_target_named(task, name))
		join(task, MEMBER_RENAMED);
	else
		leave(task);
	return 0;
}

/* Fires after the move. Names only the leader of the threads that moved, so user space looks at all of them again. */
SEC("?tp_btf/cgroup_attach_task")
int BPF_PROG(cgroup_attach_task, struct cgroup *to, const char *path, struct task_struct *leader)
{
	if (is_target(leader))
		join(leader, MEMBER_FOUND);
	else
		leave(leader);
	__sync_fetch_and_add(&cgroup_moves, 1);
	return 0;
}

#endif
