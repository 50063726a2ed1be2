/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* scheduler.bpf.h: who runs, and who is made runnable. */
#ifndef __SCHEDULER_BPF_H__
#define __SCHEDULER_BPF_H__

#include "log.bpf.h"
#include <bpf/bpf_tracing.h>

enum {
	/* `thread` leaves the CPU to `other`; `detail`: it goes on wanting it. */
	SWITCH = 1,
	/* `thread` is made runnable. */
	WAKEUP = 2,
};

static __always_inline void note_wakeup(struct task_struct *task)
{
	struct event event = { .kind = WAKEUP, .thread = task->pid };

	note(&event);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(log_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct event event = {
		.kind = SWITCH,
		.thread = prev->pid,
		.other = next->pid,
		.detail = preempt || !prev_state,
	};

	note(&event);
	return 0;
}

SEC("?tp_btf/sched_wakeup")
int BPF_PROG(log_wakeup, struct task_struct *task)
{
	note_wakeup(task);
	return 0;
}

SEC("?tp_btf/sched_wakeup_new")
int BPF_PROG(log_wakeup_new, struct task_struct *task)
{
	note_wakeup(task);
	return 0;
}

#endif
