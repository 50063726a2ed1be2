/* SPDX-License-Identifier: MIT */
/* queue_clock.bpf.h: waits for a CPU that begin while no program is attached, by the kernel's own stamps. */
#ifndef __QUEUE_CLOCK_BPF_H__
#define __QUEUE_CLOCK_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "window.bpf.h"

/* The collection is cut into windows. */
__u32 in_windows = 0;

/* Around windows waits are followed, and not counted: those that begin just before one end in it. */
static __always_inline bool is_followed(__u64 now)
{
	return in_windows || in_window(now);
}

/* What the run queue's clock, by which the kernel stamps waits, is behind ours: learnt from the first wakeups of a window,
 * whose stamp is a moment old; 0: nothing learnt yet.
 */
__u64 clock_offset = 0;
/* The same for the window before, which waits that began after it are timed by. */
__u64 last_clock_offset = 0;
__u32 clock_samples = 0;
#define CLOCK_SAMPLES 16

/* Not from those of whom it is known that they wait already: their stamps are old. */
static __always_inline void learn_clock(struct task_struct *task)
{
	__u64 offset;

	if (!in_windows || clock_samples >= CLOCK_SAMPLES || !bpf_core_field_exists(task->sched_info.last_queued) ||
	    !task->sched_info.last_queued)
		return;
	clock_samples++;
	offset = bpf_ktime_get_ns() - task->sched_info.last_queued;
	if (!clock_offset || (__s64)(offset - clock_offset) < 0)
		clock_offset = offset;
}

/* A wait that began between two windows: since when, by the kernel's own stamp. */
static __always_inline __u64 queued_since(struct task_struct *task, __u64 now)
{
	__u64 since;

	if (!bpf_core_field_exists(task->sched_info.last_queued) || !last_clock_offset)
		return 0;
	since = BPF_CORE_READ(task, sched_info.last_queued);
	if (!since)
		return 0;
	since += last_clock_offset;
	return since < now ? since : now;
}

#endif
