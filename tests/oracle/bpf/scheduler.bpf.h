/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* scheduler.bpf.h: who runs, and who is made runnable. */
#ifndef __SCHEDULER_BPF_H__
#define __SCHEDULER_BPF_H__

#include "log.bpf.h"
#include "compat.bpf.h"
#include <bpf/bpf_tracing.h>

enum {
	/* `thread` leaves the CPU to `other`. `detail`: the state that it leaves in; PREEMPTED: it is driven from it. */
	SWITCH = 1,
	/* `thread` is made runnable. `detail`: IS_NEW: for the first time; IS_ON_CPU: it runs. */
	WAKEUP = 2,
	/* It will be. On its way to sleep it may still be on its CPU. */
	WAKING = 7,
};

#define PREEMPTED (1ULL << 32)

#define IS_NEW 1
#define IS_ON_CPU 2

static __always_inline void note_wakeup(__u32 kind, struct task_struct *task, __u32 is_new)
{
	struct event event = {
		.kind = kind,
		.thread = task->pid,
		.detail = is_new | (is_on_cpu(task) ? IS_ON_CPU : 0),
	};

	if (is_meant(task))
		note(&event);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(log_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct event event = {
		.kind = SWITCH,
		.thread = prev->pid,
		.other = next->pid,
		.detail = prev_state | (preempt ? PREEMPTED : 0),
	};

	if (is_meant(prev) || is_meant(next))
		note(&event);
	return 0;
}

SEC("?tp_btf/sched_wakeup")
int BPF_PROG(log_wakeup, struct task_struct *task)
{
	note_wakeup(WAKEUP, task, 0);
	return 0;
}

SEC("?tp_btf/sched_wakeup_new")
int BPF_PROG(log_wakeup_new, struct task_struct *task)
{
	note_wakeup(WAKEUP, task, IS_NEW);
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(log_waking, struct task_struct *task)
{
	note_wakeup(WAKING, task, 0);
	return 0;
}

#endif
