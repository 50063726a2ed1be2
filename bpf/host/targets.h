/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* targets.h: what becomes of tasks of all kinds, and who of them is a target; behind a tool's programs. */
#ifndef __HOST_TARGETS_H__
#define __HOST_TARGETS_H__

#include "tasks.h"

/* `executed`: the process is meant from now on, and not from its exec on. */
void host_want_process(__u32 tgid, bool executed)
{
	__u8 wanted = executed;

	bpf_map_update_elem(&target_tgids, &tgid, &wanted, BPF_ANY);
}

void host_want_thread(__u32 tid)
{
	__u8 wanted = 1;

	bpf_map_update_elem(&target_tids, &tid, &wanted, BPF_ANY);
}

/* `name` goes on behind its 16 bytes. */
bool host_matches(const struct glob *glob, const char *name)
{
	return glob_match(glob, name);
}

bool host_is_member(struct task_struct *task)
{
	return member_of(task);
}

/* It has waited since then. */
void host_waits_since(struct task_struct *task, __u64 ns)
{
	struct member *member = member_of(task);

	if (member)
		member->runnable_ns = ns;
}

__u64 host_waiting_since(struct task_struct *task)
{
	struct member *member = member_of(task);

	return member ? member->runnable_ns : 0;
}

__u64 host_cgroup_moves(void)
{
	return cgroup_moves;
}

#endif
