/* SPDX-License-Identifier: MIT */
/* futex_requeue.bpf.h: waiters that a requeue moves from one futex to another without waking them.
 *
 * The kernel tells nobody which ones it moved. But who is later woken through the second futex after having begun to wait on
 * the first has been moved, and when is known from the requeue.
 */
#ifndef __FUTEX_REQUEUE_BPF_H__
#define __FUTEX_REQUEUE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "futex_state.bpf.h"
#include "ids.bpf.h"
#include "maps.bpf.h"
#include "targets.bpf.h"

#define MAX_REQUEUES 4096

struct requeue_key {
	__u64 from;
	__u64 to;
	__u64 mm;
};

/* (from, to) → time of the latest requeue; the least recently used make room */
MAP(LRU_HASH, requeues, struct requeue_key, __u64, MAX_REQUEUES);

/* A requeue by the task that is current has returned; it moved someone if the result is positive. */
static __always_inline void note_requeue(struct futex_call *call, struct task_struct *task, long ret)
{
	struct requeue_key key = { .from = call->address, .to = call->address2, .mm = (__u64)BPF_CORE_READ(task, mm) };
	__u64 now = bpf_ktime_get_ns();

	if (ret > 0)
		bpf_map_update_elem(&requeues, &key, &now, BPF_ANY);
}

/* Whether `by`, whose caller is current, wakes a waiter that was moved to its futex. Notes when. */
static __always_inline bool was_requeued(struct futex_wait *futex, struct futex_call *by)
{
	struct requeue_key key = {
		.from = futex->call.address,
		.to = by->address,
		.mm = (__u64)BPF_CORE_READ(current_task(), mm),
	};
	__u64 *at = bpf_map_lookup_elem(&requeues, &key);

	if (!at || *at < futex->wait.begin_ns)
		return false;
	futex->requeued_ns = *at;
	futex->requeued_to = by->address;
	futex->queued_before_ns = futex->wait.run_queue_ns;
	return true;
}

#endif
