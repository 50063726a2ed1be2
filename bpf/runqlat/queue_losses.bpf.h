/* SPDX-License-Identifier: MIT */
/* queue_losses.bpf.h: waits for a CPU that are in no sum. */
#ifndef __QUEUE_LOSSES_BPF_H__
#define __QUEUE_LOSSES_BPF_H__

#include "vmlinux.h"
#include "compat.bpf.h"
#include "members.bpf.h"
#include "window.bpf.h"

struct runqlat_losses {
	__u64 slow_ring_full;
	__u64 negative;
	/* Waits whose end was hidden. */
	__u64 unseen;
};

struct runqlat_losses losses = {};

/* Forgets a wait that is over without our having seen it end. */
static __always_inline void drop_stale_wait(struct member *member, struct task_struct *task)
{
	if (!member->runnable_ns || member->switches == switches_of(task))
		return;
	/* What began beside a window may have ended there. */
	if (in_window(member->runnable_ns))
		__sync_fetch_and_add(&losses.unseen, 1);
	member->runnable_ns = 0;
}

/* A wait of the window is over, and nobody saw its end. Who has slept since then is asked now, for it may never wake. What is read first
 * was true before the rest was: a wait that ends or begins meanwhile is not taken for one of these.
 */
static __always_inline void count_unseen_end(struct member *member, struct task_struct *task)
{
	__u64 switches = *(volatile __u64 *)&task->nvcsw + *(volatile __u64 *)&task->nivcsw, begun;
	bool runs = is_on_cpu(task), is_over;

	barrier();
	begun = *(volatile __u64 *)&member->runnable_ns;
	is_over = runs ? member->switches == switches : member->switches < switches;
	if (!begun || !in_window(begun) || !is_over)
		return;
	member->runnable_ns = 0;
	__sync_fetch_and_add(&losses.unseen, 1);
}

#endif
