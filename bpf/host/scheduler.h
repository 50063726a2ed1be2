/* SPDX-License-Identifier: MIT */
/* scheduler.h: the scheduler's events that every tool for threads has a program for; behind these. */
#ifndef __HOST_SCHEDULER_H__
#define __HOST_SCHEDULER_H__

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

#endif
