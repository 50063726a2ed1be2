/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat_threads.h: names, processes and cgroups of the threads that wait. */
#ifndef __HOST_RUNQLAT_THREADS_H__
#define __HOST_RUNQLAT_THREADS_H__

#define HOST_PROCESSES 5
#define HOST_CGROUPS 3
/* Numbers that no thread has. */
#define HOST_FIRST_PROCESS 1000000
#define HOST_FIRST_CGROUP 2000000

/* The tool's PID namespace; what numbers are there besides. */
#define HOST_NAMESPACE 77
#define HOST_INNER_THREADS 3000000
#define HOST_INNER_PROCESSES 4000000

struct host_number {
	struct pid pid;
	/* Part of pid.numbers. */
	struct upid inner;
};

static void host_number(struct task_struct *task, __u32 inner, bool is_own)
{
	static struct pid_namespace own, other;
	struct host_number *number = host_make_task(sizeof(*number));

	own.ns.inum = HOST_NAMESPACE;
	other.ns.inum = HOST_NAMESPACE + 1;
	number->pid.level = inner ? 1 : 0;
	number->inner.nr = inner;
	number->inner.ns = is_own ? &own : &other;
	task->thread_pid = &number->pid;
}

/* One of six threads is outside the tool's namespace, one in another beside it. */
static void host_number_thread(struct task_struct *task)
{
	bool is_within = task->pid && task->pid % 6 < 5;

	host_number(task, is_within ? HOST_INNER_THREADS + task->pid : 0, task->pid % 6 < 4);
}

/* The tool has a PID namespace of its own from now on. */
void host_within_namespace(void)
{
	struct target_config inside = targets;

	inside.pid_namespace = HOST_NAMESPACE;
	host_poke(&targets, &inside, sizeof(inside));
	host_set(0, 0, host_thread(1));
	note_namespace(NULL);
}

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
	host_number(leader, HOST_INNER_PROCESSES + process, true);
	host_number_thread(task);
	task->tgid = leader->tgid;
	task->group_leader = task->real_parent = leader;
	nodes[cgroup].id = HOST_FIRST_CGROUP + cgroup;
	cgroups[cgroup].kn = &nodes[cgroup];
	sets[cgroup].dfl_cgrp = &cgroups[cgroup];
	task->cgroups = &sets[cgroup];
}

#endif
