/* SPDX-License-Identifier: MIT */
/* futex_wakeups.bpf.h: who ends a wait on a futex, and whether by a release. */
#ifndef __FUTEX_WAKEUPS_BPF_H__
#define __FUTEX_WAKEUPS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "futex_identity.bpf.h"
#include "futex_requeue.bpf.h"
#include "futex_state.bpf.h"
#include "lock_counts.bpf.h"
#include "members.bpf.h"
#include "stacks.bpf.h"
#include "wakers.bpf.h"

/* True where the holder stands when `waker_pid` ends the wait. A lock that processes share may name its owner as that one knows
 * itself in another PID namespace, where the number means somebody else: such an owner is one if it releases the lock.
 */
static __always_inline bool is_sure(const struct futex_wait *futex, __u32 waker_pid)
{
	if (futex->wait.holder.kind == HOLDER_OWNER && futex->call.flags & FUTEX_IS_SHARED)
		return futex->wait.holder.pid == waker_pid;
	return futex->wait.holder.kind;
}

/* Before the wait is counted. */
static __always_inline void drop_unsure_holder(struct futex_wait *futex)
{
	if (!is_sure(futex, futex->wait.waker_pid))
		futex->wait.holder.kind = HOLDER_UNKNOWN;
}

/* True where the task that is current is releasing what `futex` waits for, and not just hit by the interrupt that ends it. */
static __always_inline bool is_release(struct futex_wait *futex, struct futex_call *by)
{
	/* One who ends it without a release is forgotten when the call returns: it has failed. */
	if (is_call_lock(&futex->call))
		return true;
	if (!is_futex_wake(by))
		return false;
	if (by->operation == FUTEX_BY_EXIT || by->address == futex->call.address || by->address2 == futex->call.address)
		return true;
	/* The one of several that it will be is known when the call returns. */
	if (futex->call.operation == FUTEX2_WAITV)
		return true;
	/* A shared futex may be mapped elsewhere in the waker. */
	return was_requeued(futex, by) || futex->call.flags & by->flags & FUTEX_IS_SHARED;
}

/* The task that is current ends the wait: its doings since that began or was last reported, or since its own wait for `turn`. */
static __always_inline void note_meanwhile(struct lock_wait *wait, __u32 turn, __u64 now)
{
	__u64 from = larger_of(larger_of(wait->begin_ns, wait->reported_ns), window_start_ns);
	struct member *by = member_of(current_task());

	from = smaller_of(from, now);
	__builtin_memset(wait->meanwhile, 0, sizeof(wait->meanwhile));
	if (by)
		add_meanwhile(&by->pauses, wait->meanwhile, turn, from, now);
	else
		wait->meanwhile[MEANWHILE_UNKNOWN] = now - from;
}

/* Runs in the waker's context. */
static __always_inline void futex_woken(void *ctx, struct futex_wait *futex, const volatile struct stack_config *stacks)
{
	__u64 now = bpf_ktime_get_ns();
	struct stack_scratch *scratch;
	struct futex_call by;
	__u32 slot;

	if (!is_in_wait(futex) || has_ended(now))
		return;
	if (futex->phase == FUTEX_BLOCKED) {
		futex->phase = FUTEX_RUNNABLE;
		futex->runnable_ns = now;
	}
	futex_call_of(current_task(), true, &by);
	if (!is_release(futex, &by))
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.unwalked, 1);
		return;
	}
	futex->wait.waker = leaves_out_stack() ? 0 : waker_record(ctx, slot, scratch, stacks);
	futex->wait.waker_pid = (__u32)bpf_get_current_pid_tgid();
	if (!is_sure(futex, futex->wait.waker_pid))
		note_holder(&futex->wait.holder, current_task(), HOLDER_WAKER, false);
	note_meanwhile(&futex->wait, futex_turn(futex), now);
	release_scratch(scratch);
}

#endif
