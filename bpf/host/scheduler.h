/* SPDX-License-Identifier: MIT */
/* scheduler.h: the scheduler's events that every tool for threads has a program for; behind these. */
#ifndef __HOST_SCHEDULER_H__
#define __HOST_SCHEDULER_H__

#include "processes.h"

/* The kernel counts a switch before it tells of it. */
void host_leaves(struct task_struct *task, bool runnable)
{
	if (runnable)
		task->nivcsw++;
	else
		task->nvcsw++;
}

void host_seed(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	seed_members(&context);
}

void host_switch(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	unsigned long long context[] = { preempt, (unsigned long long)prev, (unsigned long long)next, state };

	sched_switch(context);
}

/* The same on a kernel that leaves it to us to read the state. */
void host_switch_pre_5_18(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	unsigned long long context[] = { preempt, (unsigned long long)prev, (unsigned long long)next, ~0ULL };

	sched_switch_pre_5_18(context);
}

#endif
