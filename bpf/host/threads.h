/* SPDX-License-Identifier: MIT */
/* threads.h: threads, and the scheduler's events about them; behind a tool's programs.
 *
 * The tool defines `host_give`: all that its threads have besides a number.
 */
#ifndef __HOST_THREADS_H__
#define __HOST_THREADS_H__

#include "scheduler.h"

/* A number in letters, the lowest four bits first. */
static void host_call(__u8 comm[16], char kind, __u32 number)
{
	comm[0] = kind;
	for (int at = 1; at < 8; at++, number >>= 4)
		comm[at] = 'a' + number % 16;
}

static void host_give(struct task_struct *task);

struct task_struct *host_thread(__u32 tid)
{
	struct task_struct *task = host_make_task(sizeof(*task));

	task->pid = task->tgid = tid;
	task->group_leader = task->real_parent = task;
	host_call((__u8 *)task->comm, 't', tid);
	host_give(task);
	return task;
}

/* `delayed`: asleep, and on the queue as long as its lag lasts. */
void host_state(struct task_struct *task, bool queued, bool delayed, bool runs)
{
	task->on_rq = queued || delayed;
	task->se.sched_delayed = delayed;
	task->on_cpu = runs;
}

/* A thread's word on its wait: it is for a disk, for a lock of the kernel that one of three fields tells of, or for its cgroup's
 * next share of the CPUs.
 */
void host_says(struct task_struct *task, bool io, __u32 lock_field, bool throttled)
{
	task->in_iowait = io;
	task->blocked_on = lock_field == 1 ? (void *)task : NULL;
	task->blocker = lock_field == 2;
	task->pi_blocked_on = lock_field == 3 ? (void *)task : NULL;
	task->throttled = throttled;
}

/* User space says when the window opens; 0: it has not yet. */
void host_opens(__u64 ns)
{
	window_start_ns = ns;
}

/* Lag of the run queue's clock behind ours. */
#define HOST_CLOCK_OFFSET 777

/* The kernel stamps who is put on a run queue; 0: it is on none. */
void host_queued(struct task_struct *task, __u64 now)
{
	task->sched_info.last_queued = now ? now - HOST_CLOCK_OFFSET : 0;
}

/* Its state as long as nobody wakes it. */
void host_sleeps(struct task_struct *task, __u32 state)
{
	task->__state = state;
}

/* One came in time to keep it from sleeping. */
void host_signal(struct task_struct *task, bool came)
{
	task->thread_info.flags = came ? SIGNAL_FLAGS : 0;
}

#endif
