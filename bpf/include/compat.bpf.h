/* SPDX-License-Identifier: MIT */
/* compat.bpf.h: what changed between kernels, with the commit, its effect and one helper each. */
#ifndef __COMPAT_BPF_H__
#define __COMPAT_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "registers.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___pre_5_14 {
	volatile long state;
};
struct task_struct___pre_5_16 {
	unsigned int cpu;
};
struct cgroup___pre_6_1 {
	u64 ancestor_ids[0];
};
struct cfs_rq___pre_5_19 {
	u64 throttled_clock_task_time;
};
#pragma clang attribute pop

/* User registers of a thread inside the kernel, to be read by helpers. dd6e10fbd9fb (5.15) added the helper; before, they
 * are where every entry from user space puts them: at the very top of the kernel stack.
 */
static __always_inline const struct pt_regs *user_regs_of(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (const struct pt_regs *)bpf_task_pt_regs(task);
	return (const struct pt_regs *)(BPF_CORE_READ(task, stack) + KERNEL_STACK_BYTES - user_regs_bytes());
}

/* 3ca1032ab7ab (5.11) added the pointer that needs no helper to be read through. */
static __always_inline struct task_struct *current_task(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return bpf_get_current_task_btf();
	return (struct task_struct *)bpf_get_current_task();
}

/* An int until 7.2, a byte since: as wide as it is here, and zero above. */
#define READ_FLAG(task, field)                                                         \
	({                                                                             \
		__u32 flag = 0;                                                        \
		bpf_core_read(&flag, bpf_core_field_size((task)->field), &(task)->field); \
		flag;                                                                  \
	})

static __always_inline bool is_on_cpu(struct task_struct *task)
{
	return READ_FLAG(task, on_cpu);
}

/* 2f064a59a11f (5.14) renamed `state` to `__state` and made it an unsigned int. */
static __always_inline __u32 task_state(struct task_struct *task)
{
	struct task_struct___pre_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return (__u32)BPF_CORE_READ(old, state);
}

/* bcf9033e5449 (5.16) moved it. */
static __always_inline __u32 task_cpu(struct task_struct *task)
{
	struct task_struct___pre_5_16 *old = (void *)task;

	if (bpf_core_field_exists(task->thread_info.cpu))
		return BPF_CORE_READ(task, thread_info.cpu);
	return BPF_CORE_READ(old, cpu);
}

/* 7f203bc89eb6 (6.1) replaced the array of ancestors' ids by one of pointers. */
static __always_inline __u64 cgroup_ancestor_id(struct cgroup *cgroup, int level)
{
	struct cgroup___pre_6_1 *old = (void *)cgroup;
	struct cgroup *ancestor = NULL;
	__u64 id = 0;

	if (bpf_core_field_exists(cgroup->ancestors)) {
		bpf_core_read(&ancestor, sizeof(ancestor), &cgroup->ancestors[level]);
		return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
	}
	bpf_core_read(&id, sizeof(id), &old->ancestor_ids[level]);
	return id;
}

/* 152e11f6df29 (6.12): a sleeper may stay on the run queue until its lag is gone; it is not runnable. */
static __always_inline bool is_queued(struct task_struct *task)
{
	if (!READ_FLAG(task, on_rq))
		return false;
	if (bpf_core_field_exists(task->se.sched_delayed))
		return !BPF_CORE_READ(task, se.sched_delayed);
	return true;
}

/* Below are real-time tasks, which need no quota. */
#define FAIR_PRIO 100

/* The run queue that a task waits in where the kernel throttles whole queues; 2cd571245b43 (6.18) throttles tasks one by one. */
static __always_inline struct cfs_rq *queue_above(struct task_struct *task)
{
	struct cfs_rq *queue;

	if (bpf_core_field_exists(task->throttled) || !bpf_core_field_exists(task->se.cfs_rq) || task->prio < FAIR_PRIO)
		return NULL;
	queue = BPF_CORE_READ(task, se.cfs_rq);
	return bpf_core_field_exists(queue->throttle_count) ? queue : NULL;
}

static __always_inline bool is_throttled(struct task_struct *task)
{
	struct cfs_rq *queue;

	if (bpf_core_field_exists(task->throttled))
		return BPF_CORE_READ(task, throttled);
	queue = queue_above(task);
	return queue && BPF_CORE_READ(queue, throttle_count) > 0;
}

/* Time that it has stood still for want of quota, by a clock of its own, counted when it goes on. 64eaf50731ac (5.19) has the new name. */
static __always_inline __u64 stood_still_of(struct cfs_rq *queue)
{
	struct cfs_rq___pre_5_19 *old = (void *)queue;

	if (bpf_core_field_exists(queue->throttled_clock_pelt_time))
		return BPF_CORE_READ(queue, throttled_clock_pelt_time);
	if (bpf_core_field_exists(old->throttled_clock_task_time))
		return BPF_CORE_READ(old, throttled_clock_task_time);
	return 0;
}

/* How often it has left a CPU: the same number means the same stay, or the same absence. */
static __always_inline __u64 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

#endif
