/* SPDX-License-Identifier: MIT */
/* quotas.bpf.h: CPU quotas of the cgroups that targets are in, and which waits were for want of one. */
#ifndef __QUOTAS_BPF_H__
#define __QUOTAS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "maps.bpf.h"
#include "members.bpf.h"

#define MAX_QUOTAS 4096
/* Groups above a task that are looked at, the nearest first: each takes the verifier time. */
#define QUOTA_LEVELS 8
#define NO_QUOTA (~0ULL)

/* Groups that found no room in `quotas`. */
__u64 quotas_full = 0;
/* Groups in it. */
__u64 quotas_known = 0;

/* The kernel's own, since the group was made. */
struct quota_account {
	__u64 periods;
	__u64 used_up;
	__u64 throttled_ns;
};

/* `began`: when its first target was seen, or as user space sets it at an edge. */
struct quota {
	struct quota_account began;
	struct quota_account now;
};

/* id of a group that has, or had, a quota → its account */
MAP(HASH, quotas, __u64, struct quota, MAX_QUOTAS);

static __always_inline void read_account(struct task_group *group, struct quota_account *account)
{
	account->periods = BPF_CORE_READ(group, cfs_bandwidth.nr_periods);
	account->used_up = BPF_CORE_READ(group, cfs_bandwidth.nr_throttled);
	account->throttled_ns = BPF_CORE_READ(group, cfs_bandwidth.throttled_time);
}

static __always_inline void note_quota(struct task_group *group, bool may_be_new)
{
	__u64 id = BPF_CORE_READ(group, css.cgroup, kn, id);
	struct quota *known = bpf_map_lookup_elem(&quotas, &id);
	struct quota first = {};

	if (known) {
		read_account(group, &known->now);
		return;
	}
	if (!may_be_new)
		return;
	read_account(group, &first.began);
	first.now = first.began;
	if (!bpf_map_update_elem(&quotas, &id, &first, BPF_NOEXIST))
		__sync_fetch_and_add(&quotas_known, 1);
	/* Another CPU may have been faster. */
	else if (!bpf_map_lookup_elem(&quotas, &id))
		__sync_fetch_and_add(&quotas_full, 1);
}

/* Verified by itself, and not on every path of every caller. */
__attribute__((noinline)) int note_quotas_from(__u64 address, bool may_be_new)
{
	struct task_group *group = (void *)address;

	for (int level = 0; level < QUOTA_LEVELS && group; level++) {
		if (BPF_CORE_READ(group, cfs_bandwidth.quota) != NO_QUOTA || BPF_CORE_READ(group, cfs_bandwidth.nr_periods))
			note_quota(group, may_be_new);
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}

/* The accounts of the groups above a task, as they are now; of groups that are new only if `may_be_new`, which makes entries: never
 * under a run queue's lock.
 */
static __always_inline void note_quotas(struct task_struct *task, bool may_be_new)
{
	struct task_group *group;

	if (!bpf_core_field_exists(task->sched_task_group) || !(may_be_new || quotas_known))
		return;
	group = BPF_CORE_READ(task, sched_task_group);
	if (bpf_core_field_exists(group->cfs_bandwidth.nr_periods))
		note_quotas_from((__u64)group, may_be_new);
}

/* Run at each edge. Groups that have no target any more may have other tasks. */
SEC("iter/task")
int read_quotas(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		note_quotas(task, member_of(task) != NULL);
	return 0;
}

/* A value of `member->stood_still`: it had no quota when its wait began. */
#define WITHOUT_QUOTA (~0ULL)

/* A wait begins. Where whole queues are throttled, one may be while the task waits in it. */
static __always_inline void begin_without_quota(struct member *member, struct task_struct *task)
{
	struct cfs_rq *queue = queue_above(task);

	member->queue = (__u64)queue;
	member->stood_still = is_throttled(task) ? WITHOUT_QUOTA : queue ? stood_still_of(queue) : 0;
}

/* The wait that ends was, for some of its time at least, for want of quota. Throttled queues keep their tasks. */
static __always_inline bool was_without_quota(struct member *member, struct task_struct *task)
{
	struct cfs_rq *queue;

	if (member->stood_still == WITHOUT_QUOTA)
		return true;
	queue = queue_above(task);
	return queue && member->queue == (__u64)queue && member->stood_still != stood_still_of(queue);
}

#endif
