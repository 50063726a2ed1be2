/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* tasks.h: tasks of all kinds, and their processes, namespaces and cgroups. */
#ifndef __HOST_TASKS_H__
#define __HOST_TASKS_H__

#define HOST_LEVELS 24

/* A cgroup below `parent`; NULL: the root. */
struct cgroup *host_cgroup(struct cgroup *parent, __u64 id)
{
	struct cgroup *cgroup = host_reserve(sizeof(*cgroup) + HOST_LEVELS * sizeof(cgroup->ancestors[0]));

	cgroup->level = parent ? parent->level + 1 : 0;
	cgroup->kn = host_make_task(sizeof(*cgroup->kn));
	cgroup->kn->id = id;
	for (int level = 0; level < cgroup->level; level++)
		cgroup->ancestors[level] = parent->ancestors[level];
	cgroup->ancestors[cgroup->level] = cgroup;
	return cgroup;
}

/* All that a task has, as the test has it. */
struct host_facts {
	__u32 pid;
	__u32 tgid;
	/* Number in the tool's namespace; 0: it is outside. */
	__u32 inner_pid;
	__u32 inner_namespace;
	__u32 flags;
	/* Threads of its process that live. */
	__u32 live;
	__u64 start_time;
	struct task_struct *leader;
	struct task_struct *parent;
	struct cgroup *cgroup;
	char comm[16];
};

/* A task's memory, and all that it points to. */
struct host_body {
	struct task_struct task;
	struct css_set set;
	struct signal_struct signal;
	struct pid_namespace namespace;
	struct pid pid;
	/* Second one of pid.numbers. */
	struct upid inner;
};

struct task_struct *host_body(void)
{
	return host_make_task(sizeof(struct host_body));
}

void host_dress(struct task_struct *task, const struct host_facts *facts)
{
	struct host_body *body = (void *)task;

	task->pid = facts->pid;
	task->tgid = facts->tgid;
	task->flags = facts->flags;
	task->start_time = facts->start_time;
	task->group_leader = facts->leader ?: task;
	task->real_parent = facts->parent ?: task;
	__builtin_memcpy(task->comm, facts->comm, sizeof(task->comm));
	task->cgroups = &body->set;
	body->set.dfl_cgrp = facts->cgroup;
	task->signal = &body->signal;
	body->signal.live.counter = facts->live;
	task->thread_pid = &body->pid;
	body->pid.level = facts->inner_pid ? 1 : 0;
	body->pid.numbers[0].nr = facts->pid;
	body->inner.nr = facts->inner_pid;
	body->inner.ns = &body->namespace;
	body->namespace.ns.inum = facts->inner_namespace;
}

#endif
