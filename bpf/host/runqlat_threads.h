/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat_threads.h: names, processes and cgroups of the threads that wait. */
#ifndef __HOST_RUNQLAT_THREADS_H__
#define __HOST_RUNQLAT_THREADS_H__

#define HOST_PROCESSES 5
#define HOST_CGROUPS 3
/* Numbers that no thread has. */
#define HOST_FIRST_PROCESS 1000000
#define HOST_FIRST_CGROUP 2000000

/* Thread n is in process n % 5 under a leader of another name, and in cgroup n % 3. */
static void host_give(struct task_struct *task)
{
	static struct task_struct leaders[HOST_PROCESSES];
	static struct kernfs_node nodes[HOST_CGROUPS];
	static struct cgroup cgroups[HOST_CGROUPS];
	static struct css_set sets[HOST_CGROUPS];
	__u32 process = task->pid % HOST_PROCESSES, cgroup = task->pid % HOST_CGROUPS;
	struct task_struct *leader = &leaders[process];

	leader->pid = leader->tgid = HOST_FIRST_PROCESS + process;
	leader->group_leader = leader->real_parent = leader;
	host_call((__u8 *)leader->comm, 'p', leader->tgid);
	task->tgid = leader->tgid;
	task->group_leader = task->real_parent = leader;
	nodes[cgroup].id = HOST_FIRST_CGROUP + cgroup;
	cgroups[cgroup].kn = &nodes[cgroup];
	sets[cgroup].dfl_cgrp = &cgroups[cgroup];
	task->cgroups = &sets[cgroup];
}

#endif
