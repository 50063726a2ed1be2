/* SPDX-License-Identifier: MIT */
/* targets.bpf.h: which tasks the user asked for; one answer for all tools.
 *
 * `is_target` is asked about the task an event is about, never about whoever happens to be current. It is too slow for
 * the scheduler's hot path: tools ask it when a task appears, changes its name or moves to another cgroup, and keep the
 * answer (see members.bpf.h).
 */
#ifndef __TARGETS_BPF_H__
#define __TARGETS_BPF_H__

#include "vmlinux.h"
#include "compat.bpf.h"
#include "glob.bpf.h"
#include "ids.bpf.h"
#include "maps.bpf.h"

#define MAX_TARGET_IDS 4096
#define MAX_CGROUP_DEPTH 24

enum target_mode {
	TARGET_ALL = 0,
	TARGET_USER_THREADS = 1,
	TARGET_KERNEL_THREADS = 2,
};

struct target_config {
	enum target_mode mode;
	/* Inode number of the PID namespace that IDs are given in. */
	__u32 pid_namespace;
	/* The tool leaves itself out. */
	__u32 own_tgid;
	__u32 by_tgid;
	__u32 by_tid;
	__u32 by_comm;
	/* Children of targets are targets. */
	__u32 follow;
	/* ID of a cgroup v2 directory, whose subtree is meant; 0: any. */
	__u64 cgroup_id;
	/* CLOCK_MONOTONIC; the processes that the tool forks are younger. */
	__u64 own_since_ns;
};

const volatile struct target_config targets = {};
const volatile struct glob comm_glob = {};

/* Process IDs asked for, in the tool's PID namespace; 0: from its exec on, see target_executed. */
MAP(HASH, target_tgids, __u32, __u8, MAX_TARGET_IDS);

/* Thread IDs asked for, in the tool's PID namespace. */
MAP(HASH, target_tids, __u32, __u8, MAX_TARGET_IDS);

/* Children of a command that found no room in `target_tgids`. */
__u64 targets_full = 0;

static __always_inline bool in_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	int depth = BPF_CORE_READ(cgroup, level);

	for (int level = 0; level < MAX_CGROUP_DEPTH && level <= depth; level++)
		if (cgroup_ancestor_id(cgroup, level) == targets.cgroup_id)
			return true;
	return false;
}

/* `-- COMMAND` is a child of the tool until its exec: what it does before, waiting for its start included, is the tool's
 * work under the tool's name. Returns whether this exec makes it a target.
 */
static __always_inline bool target_executed(struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);
	__u8 *wanted = bpf_map_lookup_elem(&target_tgids, &tgid);

	if (!wanted || *wanted)
		return false;
	*wanted = 1;
	return true;
}

static __always_inline bool is_wanted_tgid(struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);
	__u8 *wanted = bpf_map_lookup_elem(&target_tgids, &tgid);

	return wanted && *wanted;
}

static __always_inline bool is_leader(struct task_struct *task)
{
	return BPF_CORE_READ(task, pid) == BPF_CORE_READ(task, tgid);
}

/* A number asked for meant who had it then: a task that is new under it is somebody else. */
static __always_inline void forget_reused(struct task_struct *child)
{
	__u32 id;

	if (targets.by_tgid && is_leader(child)) {
		id = tgid_of(targets.pid_namespace, child);
		bpf_map_delete_elem(&target_tgids, &id);
	}
	if (targets.by_tid) {
		id = tid_of(targets.pid_namespace, child);
		bpf_map_delete_elem(&target_tids, &id);
	}
}

/* `-- COMMAND`: a target's children belong to it, whatever they are called; --comm then chooses among them. */
static __always_inline void target_forked(struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = tgid_of(targets.pid_namespace, child);
	__u8 wanted = 1;

	forget_reused(child);
	if (!targets.follow || !is_wanted_tgid(parent))
		return;
	if (bpf_map_update_elem(&target_tgids, &tgid, &wanted, BPF_ANY))
		__sync_fetch_and_add(&targets_full, 1);
}

/* Only the last thread's end is the process's. */
static __always_inline void forget_exited(struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);

	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&target_tgids, &tgid);
}

/* Behind all that the process does; Linux 6.16 tells of its exit before it gives back its memory and its files. Its number in a
 * namespace is gone by then.
 */
static __always_inline void forget_freed(struct task_struct *task)
{
	__u32 tgid = BPF_CORE_READ(task, tgid);

	if (is_leader(task))
		bpf_map_delete_elem(&target_tgids, &tgid);
}

/* The processes that the tool forks to open and read files: they exec nothing. A shell that became the tool may have left it other
 * children, which are older; a command that it starts is asked for by its ID.
 */
static __always_inline bool is_own_child(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	return !targets.follow && BPF_CORE_READ(leader, flags) & PF_FORKNOEXEC &&
	       BPF_CORE_READ(leader, start_time) >= targets.own_since_ns &&
	       tgid_of(targets.pid_namespace, BPF_CORE_READ(leader, real_parent)) == targets.own_tgid;
}

/* Tasks outside the tool's PID namespace: nobody there could name them. The tool itself. */
static __always_inline bool is_left_out(struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);

	return !tgid || tgid == targets.own_tgid || is_own_child(task);
}

/* Everything but name and ID lists. The idle tasks (pid 0, one per CPU) are nobody's target. */
static __always_inline bool is_kind_wanted(struct task_struct *task)
{
	bool kernel_thread = BPF_CORE_READ(task, flags) & PF_KTHREAD;

	if (BPF_CORE_READ(task, pid) == 0)
		return false;
	if (targets.mode == TARGET_USER_THREADS && kernel_thread)
		return false;
	if (targets.mode == TARGET_KERNEL_THREADS && !kernel_thread)
		return false;
	if (is_left_out(task))
		return false;
	return !targets.cgroup_id || in_cgroup(task);
}

/* `comm`: the task's name, or the one it is about to get. */
static __always_inline bool is_target_named(struct task_struct *task, const char comm[16])
{
	__u32 tid;

	if (!is_kind_wanted(task))
		return false;
	if (targets.by_comm && !glob_match(&comm_glob, comm))
		return false;
	if (targets.by_tgid && !is_wanted_tgid(task))
		return false;
	if (targets.by_tid) {
		tid = tid_of(targets.pid_namespace, task);
		if (!bpf_map_lookup_elem(&target_tids, &tid))
			return false;
	}
	return true;
}

static __always_inline bool is_target(struct task_struct *task)
{
	char comm[16] = {};

	bpf_core_read(&comm, sizeof(comm), &task->comm);
	return is_target_named(task, comm);
}

#endif
