/* SPDX-License-Identifier: MIT */
/* threads.h: threads, and the scheduler's events about them; behind a tool's programs.
 *
 * The tool defines, before it includes this file, `host_give`: all that its threads have besides a number.
 */
#ifndef __HOST_THREADS_H__
#define __HOST_THREADS_H__

struct task_struct *host_thread(__u32 tid)
{
	struct task_struct *task = host_make_task(sizeof(*task));

	task->pid = task->tgid = tid;
	task->group_leader = task->real_parent = task;
	host_give(task);
	return task;
}

/* The kernel counts a switch before it tells of it. */
void host_leaves(struct task_struct *task, bool runnable)
{
	if (runnable)
		task->nivcsw++;
	else
		task->nvcsw++;
}

/* `delayed`: asleep, and on the queue as long as its lag lasts. */
void host_state(struct task_struct *task, bool queued, bool delayed, bool runs)
{
	task->on_rq = queued || delayed;
	task->se.sched_delayed = delayed;
	task->on_cpu = runs;
}

/* One came in time to keep it from sleeping. */
void host_signal(struct task_struct *task, bool came)
{
	task->thread_info.flags = came ? SIGNAL_FLAGS : 0;
}

void host_seed(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	seed_members(&context);
}

/* `child` begins, and is not on a queue yet. */
void host_fork(struct task_struct *parent, struct task_struct *child)
{
	unsigned long long context[] = { (unsigned long long)parent, (unsigned long long)child };

	sched_process_fork(context);
}

void host_switch(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	unsigned long long context[] = { preempt, (unsigned long long)prev, (unsigned long long)next, state };

	sched_switch(context);
}

void host_wakeup(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_wakeup(context);
}

void host_wakeup_new(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_wakeup_new(context);
}

#endif
