/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lock_threads.h: threads that wait for locks, and the ends of intervals; behind lockstat's programs. */
#ifndef __HOST_LOCK_THREADS_H__
#define __HOST_LOCK_THREADS_H__

#include "scheduler.h"

void host_state(struct task_struct *task, bool queued, bool runs)
{
	task->on_rq = queued || runs;
	task->on_cpu = runs;
}

/* The iterator comes by a thread behind an interval's end. */
void host_close(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };

	close_waits(&context);
}

/* An interval ends then; its rows are in the half that is returned. `is_last`: so does the window, by the clock. */
__u32 host_turn(__u64 at, bool is_last)
{
	open_epoch = epoch & 1;
	edge_ns = at;
	if (is_last)
		window_end_ns = at;
	else
		epoch = 1 - open_epoch;
	return open_epoch;
}

#endif
