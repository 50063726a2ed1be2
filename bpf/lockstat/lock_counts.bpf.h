/* SPDX-License-Identifier: MIT */
/* lock_counts.bpf.h: adds a wait that is over, or open at the end of an interval, to the tables of lock_tables.bpf.h. */
#ifndef __LOCK_COUNTS_BPF_H__
#define __LOCK_COUNTS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "branchless.bpf.h"
#include "lock_tables.bpf.h"
#include "rows.bpf.h"

static __always_inline __u64 wait_elapsed(__u64 from, __u64 to)
{
	if (to >= from)
		return to - from;
	__sync_fetch_and_add(&lock_losses.negative, 1);
	return 0;
}

#define RAISE_TRIES 8

/* Several CPUs add to one lock's row. Compare-and-swap came with 5ffa25502b5a (5.12), and older verifiers refuse programs that have it
 * anywhere. Nothing but addition is atomic there: who reads 1 after it was alone, as in claim_scratch. Who never is, for an
 * interrupt has come upon the one who was or a hypervisor has taken its CPU away, goes ahead, and says so.
 */
static __always_inline void raise_to(__u64 *max, __u64 *raising, __u64 value)
{
	for (int i = 0; i < RAISE_TRIES; i++) {
		if (value <= *(volatile __u64 *)max)
			return;
		__sync_fetch_and_add(raising, 1);
		if (*(volatile __u64 *)raising == 1) {
			if (value > *(volatile __u64 *)max)
				*(volatile __u64 *)max = value;
			__sync_fetch_and_add(raising, -1);
			return;
		}
		__sync_fetch_and_add(raising, -1);
	}
	__sync_fetch_and_add(&lock_losses.maxima_raced, 1);
	if (value > *(volatile __u64 *)max)
		*(volatile __u64 *)max = value;
}

static __always_inline void add_bucket(struct lock_key *key, __u64 length_ns)
{
	key->bucket = hist_bucket(length_ns);
	ADD_TO_ROW(&lock_buckets, key, 1, lock_losses.buckets_full);
}

static __noinline void add_to_lock(struct lock_wait *wait, __u32 half, __u64 length_ns, __u64 total_ns, bool open)
{
	struct lock_key key = { .lock = wait->lock, .epoch = half };
	struct lock_sum zero = {}, *sum = ROW_OF(&locks, &key, zero);

	if (!sum) {
		__sync_fetch_and_add(&lock_losses.locks_full, 1);
		__sync_fetch_and_add(&lock_losses.locks_full_ns, total_ns);
		return;
	}
	if (!wait->is_counted)
		__sync_fetch_and_add(&sum->contentions, 1);
	else
		__sync_fetch_and_add(&sum->carried_ns, total_ns);
	__sync_fetch_and_add(&sum->total_ns, total_ns);
	raise_to(&sum->max_ns, &sum->raising, length_ns);
	__sync_fetch_and_add(&sum->spin_ns, wait->spin_ns);
	__sync_fetch_and_add(&sum->block_ns, wait->block_ns);
	if (wait->run_queue_ns)
		__sync_fetch_and_add(&sum->run_queue_ns, wait->run_queue_ns);
	if (wait->is_raced)
		__sync_fetch_and_add(&sum->raced, 1);
	if (wait->is_given_up && !open)
		__sync_fetch_and_add(&sum->given_up, 1);
	if (open)
		__sync_fetch_and_add(&sum->open, 1);
	if (!wait->is_counted)
		add_bucket(&key, length_ns);
}

static __noinline void add_to_waiter(struct lock_wait *wait, struct task_struct *task, __u32 half, __u64 length_ns,
				     __u64 total_ns)
{
	struct waiter_value zero = {}, *value;
	struct waiter_key key = {
		.lock = wait->lock,
		.kernel_stack = wait->kernel_stack,
		.user_stack = wait->user_stack,
		.waker = wait->waker,
		.tgid = tgid_of(targets.pid_namespace, task),
		.tid = tid_of(targets.pid_namespace, task),
		.epoch = half,
		.mode = wait->mode,
	};

	bpf_core_read(&key.comm, sizeof(key.comm), &task->comm);
	value = ROW_OF(&waiters, &key, zero);
	if (!value) {
		__sync_fetch_and_add(&lock_losses.waiters_full, 1);
		__sync_fetch_and_add(&lock_losses.waiters_full_ns, total_ns);
		return;
	}
	if (!wait->is_counted)
		__sync_fetch_and_add(&value->count, 1);
	__sync_fetch_and_add(&value->total_ns, total_ns);
	if (wait->run_queue_ns)
		__sync_fetch_and_add(&value->run_queue_ns, wait->run_queue_ns);
	/* A thread adds to its own rows. */
	if (length_ns >= value->max_ns)
		value->inside = wait->inside;
	raise_to(&value->max_ns, &value->raising, length_ns);
}

static __noinline void add_to_holder(struct lock_wait *wait, __u32 half, __u64 total_ns)
{
	struct holder_value first = {}, *value;
	struct holder_key key = {
		.lock = wait->lock,
		.stack = wait->holder.stack,
		.tid = wait->holder.tid,
		.tgid = wait->holder.tgid,
		.epoch = half,
		.kind = wait->holder.kind,
	};
	__u8 state = wait->holder.state;

	__builtin_memcpy(&first.comm, wait->holder.comm, sizeof(first.comm));
	value = ROW_OF(&holders, &key, first);
	if (!value) {
		__sync_fetch_and_add(&lock_losses.holders_full, 1);
		return;
	}
	__sync_fetch_and_add(&value->caused_ns, total_ns);
	if (wait->lock.side == LOCK_USER)
		for (__u32 i = 0; i < MEANWHILES; i++)
			__sync_fetch_and_add(&value->meanwhile[i], wait->meanwhile[i]);
	if (wait->is_counted)
		return;
	__sync_fetch_and_add(&value->waits, 1);
	if (state < HOLDER_STATES)
		__sync_fetch_and_add(&value->states[state], 1);
}

/* `now`, or the window's end if it is over. */
static __always_inline __u64 before_end(__u64 now)
{
	return smaller_of(now, known_or_never(window_end_ns));
}

/* Ends what `wait` has been doing since part_ns, as far as it belongs to the interval under way. */
static __always_inline void end_part(struct lock_wait *wait, __u64 now)
{
	__u64 from = wait->part_ns;

	__u64 length_ns;

	from = larger_of(from, window_start_ns);
	now = before_end(now);
	length_ns = larger_of(now, from) - from;
	if (!window_start_ns)
		length_ns = 0;
	if (wait->is_spinning)
		wait->spin_ns += length_ns;
	else
		wait->block_ns += length_ns;
	wait->part_ns = now;
}

/* Time on the run queue since `from`, as far as it belongs to the interval under way. */
static __always_inline void add_run_queue(struct lock_wait *wait, __u64 from, __u64 now)
{
	from = larger_of(larger_of(from, window_start_ns), wait->reported_ns);
	if (window_start_ns)
		wait->run_queue_ns += larger_of(now, from) - from;
}

/* Adds a wait that is over at `now`, or `open` at the end of an interval, to the tables. */
static __noinline void count_wait(struct lock_wait *wait, struct task_struct *task, __u32 half, __u64 now, bool open)
{
	__u64 from = larger_of(wait->begin_ns, window_start_ns);
	__u64 reported = larger_of(wait->reported_ns, from);
	__u64 end_ns = known_or_never(window_end_ns);
	__u64 length_ns, total_ns, outlasted;

	if (!window_start_ns || now < window_start_ns)
		return;
	/* It outlasted the window, and the iterator has not come by yet. */
	outlasted = is_below(end_ns, now);
	if (outlasted & ~is_below(reported, end_ns))
		return;
	now = smaller_of(now, end_ns);
	open |= outlasted;
	length_ns = wait_elapsed(from, now);
	total_ns = wait_elapsed(reported, now);
	end_part(wait, now);
	add_to_lock(wait, half & 1, length_ns, total_ns, open);
	add_to_waiter(wait, task, half & 1, length_ns, total_ns);
	if (wait->holder.kind != HOLDER_UNKNOWN)
		add_to_holder(wait, half & 1, total_ns);
}

/* All of a wait up to here is in a report. */
static __always_inline void note_reported(struct lock_wait *wait, __u64 until_ns)
{
	wait->is_counted = 1;
	wait->reported_ns = until_ns;
	wait->spin_ns = wait->block_ns = wait->run_queue_ns = 0;
	__builtin_memset(wait->meanwhile, 0, sizeof(wait->meanwhile));
}

/* From the closing iterator: what has passed so far belongs to the interval that ended at edge_ns. */
static __noinline void count_open_wait(struct lock_wait *wait, struct task_struct *task)
{
	/* Its owner may be about to begin it. */
	if (!wait->begin_ns || wait->begin_ns >= edge_ns || wait->reported_ns >= edge_ns)
		return;
	count_wait(wait, task, open_epoch, edge_ns, true);
	note_reported(wait, edge_ns);
}

/* An interval may have ended, and the iterator not have come by yet: what follows is of the next one. */
static __always_inline void pass_edge(struct lock_wait *wait, struct task_struct *task, __u64 now)
{
	if (is_below(known_or_never(edge_ns), now))
		count_open_wait(wait, task);
}

/* A wait that is over at `now`, which may lie before the end of an interval or behind it. */
static __always_inline void count_ended_wait(struct lock_wait *wait, struct task_struct *task, __u64 now)
{
	__u64 is_before_edge = is_below(now, edge_ns + 1);

	pass_edge(wait, task, now);
	count_wait(wait, task, epoch ^ ((open_epoch ^ epoch) & -is_before_edge), now, false);
}

#endif
