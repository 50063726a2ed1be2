/* SPDX-License-Identifier: MIT */
/* queue_losses.bpf.h: waits for a CPU that are in no sum. */
#ifndef __QUEUE_LOSSES_BPF_H__
#define __QUEUE_LOSSES_BPF_H__

#include "vmlinux.h"
#include "compat.bpf.h"
#include "members.bpf.h"
#include "queue_config.bpf.h"
#include "window.bpf.h"

struct runqlat_losses {
	__u64 slow_ring_full;
	__u64 negative;
	/* Waits whose end was hidden. */
	__u64 unseen;
};

struct runqlat_losses losses = {};

static __always_inline void count_unseen(const struct member *member)
{
	if (config.causes & (1 << member->cause))
		__sync_fetch_and_add(&losses.unseen, 1);
}

/* Forgets a wait that is over without our having seen it end. */
static __always_inline void drop_stale_wait(struct member *member, struct task_struct *task, __u64 now)
{
	if (!member->runnable_ns || member->switches == switches_of(task))
		return;
	/* One that began beside a window may have ended there; between several nobody looks. */
	if (in_window(member->runnable_ns) && (!in_windows || in_window(now)))
		count_unseen(member);
	member->runnable_ns = 0;
}

#endif
