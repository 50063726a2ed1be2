/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat_quotas.h: cgroups with CPU quotas, and who has none left. */
#ifndef __HOST_RUNQLAT_QUOTAS_H__
#define __HOST_RUNQLAT_QUOTAS_H__

/* A kernel from 6.18 on. */
void host_throttle_tasks(void)
{
	host_throttles_tasks = true;
}

struct host_quota_group {
	struct task_group group;
	struct cgroup cgroup;
	struct kernfs_node node;
};

/* A group below `parent`, without quota. */
struct task_group *host_quota_group(struct task_group *parent, __u64 id)
{
	struct host_quota_group *made = host_make_task(sizeof(*made));

	made->node.id = id;
	made->cgroup.kn = &made->node;
	made->group.css.cgroup = &made->cgroup;
	made->group.parent = parent;
	made->group.cfs_bandwidth.quota = NO_QUOTA;
	return &made->group;
}

/* The kernel's account of a group, as it is now. */
void host_spend(struct task_group *group, bool is_limited, const struct quota_account *account)
{
	group->cfs_bandwidth.quota = is_limited ? 20000000 : NO_QUOTA;
	group->cfs_bandwidth.nr_periods = account->periods;
	group->cfs_bandwidth.nr_throttled = account->used_up;
	group->cfs_bandwidth.throttled_time = account->throttled_ns;
}

void host_put(struct task_struct *task, struct task_group *group)
{
	task->sched_task_group = group;
}

void host_read_quotas(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	read_quotas(&context);
}

/* A task alone. */
void host_throttle(struct task_struct *task, bool is_throttled)
{
	task->throttled = is_throttled;
}

struct cfs_rq *host_queue(void)
{
	return host_make_task(sizeof(struct cfs_rq));
}

/* Queues above it stand still, or go on, after so long. */
void host_throttle_queue(struct cfs_rq *queue, __u32 throttle_count, __u64 stood_still)
{
	queue->throttle_count = throttle_count;
	queue->throttled_clock_pelt_time += stood_still;
}

void host_enqueue(struct task_struct *task, struct cfs_rq *queue)
{
	task->se.cfs_rq = queue;
	task->prio = FAIR_PRIO;
}

#endif
