/* SPDX-License-Identifier: MIT */
/* kernel_wakeups.bpf.h: between the release of a kernel lock that a thread sleeps for and its running again.
 *
 * The waiter's own context writes the rest of its `struct kernel_waits`; here others write `runnable_ns` and who they are.
 */
#ifndef __KERNEL_WAKEUPS_BPF_H__
#define __KERNEL_WAKEUPS_BPF_H__

#include "kernel_locks.bpf.h"
#include "stacks.bpf.h"
#include "wakers.bpf.h"

/* The wait that the thread sleeps in; NULL: none, or it spins. */
static __always_inline struct lock_wait *sleeping_wait(struct kernel_waits *waits)
{
	__u32 top = waits->depth - 1;

	if (top >= KERNEL_WAITS || waits->waits[top].is_spinning)
		return NULL;
	return &waits->waits[top];
}

static __always_inline bool wants_kernel_releasers(void)
{
	return !config.releasers.no_user || !config.releasers.no_kernel;
}

static __always_inline void note_kernel_releaser(void *ctx, struct lock_wait *wait)
{
	struct task_struct *waker = current_task();
	struct stack_scratch *scratch;
	__u32 slot;

	/* The lock names nobody: whoever wakes last releases. But a semaphore may be released by an interrupt, which is nobody. */
	if ((!wait->holder.kind || wait->holder.kind == HOLDER_WAKER) && wait->lock.class != KERNEL_SEMAPHORE)
		note_holder(&wait->holder, waker, HOLDER_WAKER, false);
	if (!wants_kernel_releasers() || leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&kernel_lock_losses.unwalked, 1);
		return;
	}
	wait->waker = waker_record(ctx, slot, scratch, &config.releasers);
	release_scratch(scratch);
}

/* Runs in the waker's context. */
static __always_inline void kernel_waiter_woken(void *ctx, struct kernel_waits *waits)
{
	struct lock_wait *wait = sleeping_wait(waits);

	if (!wait || has_ended(bpf_ktime_get_ns()))
		return;
	note_kernel_releaser(ctx, wait);
	/* It is not queued before we are done. */
	waits->runnable_ns = bpf_ktime_get_ns();
}

/* The waiter leaves its CPU. A wakeup that came before it slept is none: it has been running. */
static __always_inline void kernel_waiter_leaves(struct kernel_waits *waits, bool runnable)
{
	if (sleeping_wait(waits))
		waits->runnable_ns = runnable ? bpf_ktime_get_ns() : 0;
}

static __always_inline void kernel_waiter_runs(struct kernel_waits *waits)
{
	__u64 from = waits->runnable_ns, now;
	struct lock_wait *wait;

	if (!from)
		return;
	waits->runnable_ns = 0;
	wait = sleeping_wait(waits);
	now = bpf_ktime_get_ns();
	if (is_late(now))
		now = window_end_ns;
	if (wait && wait->reported_ns < now)
		add_run_queue(wait, from, now);
}

/* From the closing iterator: what the thread has been queued for at edge_ns. */
static __always_inline void count_open_run_queue(struct kernel_waits *waits)
{
	struct lock_wait *wait = sleeping_wait(waits);

	if (wait && waits->runnable_ns && wait->reported_ns < edge_ns)
		add_run_queue(wait, waits->runnable_ns, edge_ns);
}

#endif
