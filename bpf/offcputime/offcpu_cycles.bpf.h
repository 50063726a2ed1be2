/* SPDX-License-Identifier: MIT */
/* offcpu_cycles.bpf.h: waits one by one, of which user space makes pieces of work: from where a thread waits for work until it
 * waits there again. Off unless asked for.
 */
#ifndef __OFFCPU_CYCLES_BPF_H__
#define __OFFCPU_CYCLES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "offcpu_phases.bpf.h"
#include "offcpu_row.bpf.h"

/* One second of 150,000 waits. */
#define CYCLE_RING_BYTES (8 << 20)
#define CYCLE_RING_HIGH_WATER (CYCLE_RING_BYTES / 4)

/* A row of which waits will be told. */
struct told_row {
	__u64 id;
	struct offcputime_key key;
};

/* A wait that is over. */
struct told_wait {
	/* CLOCK_MONOTONIC. */
	__u64 off_ns;
	__u64 end_ns;
	/* From when it was made runnable to its end. */
	__u64 runqueue_ns;
	/* Its row's id. */
	__u64 row;
	/* Counts its thread's waits, those that are not told of, too. */
	__u32 number;
	__u32 pad;
};

/* Rows and waits that found the ring full. */
__u64 cycles_full = 0;

RING(told_waits, CYCLE_RING_BYTES);

/* Ring buffer records have no map that would name their type. */
const struct told_row *unused_told_row __attribute__((unused));
const struct told_wait *unused_told_wait __attribute__((unused));

static __always_inline __u64 cycle_wakeup(void)
{
	return bpf_ringbuf_query(&told_waits, BPF_RB_AVAIL_DATA) > CYCLE_RING_HIGH_WATER ? BPF_RB_FORCE_WAKEUP :
											   BPF_RB_NO_WAKEUP;
}

static __always_inline bool tell_row(const struct offcputime_key *key, __u64 id)
{
	struct told_row *row = bpf_ringbuf_reserve(&told_waits, sizeof(*row), 0);

	if (!row) {
		__sync_fetch_and_add(&cycles_full, 1);
		return false;
	}
	row->id = id;
	row->key = *key;
	bpf_ringbuf_submit(row, cycle_wakeup());
	return true;
}

/* The interval that has just ended, which is in a row. */
static __always_inline void tell_wait(const struct member *member, const struct offcputime_key *key,
				      struct offcputime_value *value, __u64 off_ns, __u64 runqueue_ns)
{
	struct told_wait *wait;

	if (!config.cycles || member->wait_flags & WAIT_KERNEL_THREAD)
		return;
	if (!value->is_told && !tell_row(key, value->id))
		return;
	value->is_told = 1;
	wait = bpf_ringbuf_reserve(&told_waits, sizeof(*wait), 0);
	if (!wait) {
		__sync_fetch_and_add(&cycles_full, 1);
		return;
	}
	wait->off_ns = member->since_ns - off_ns;
	wait->end_ns = member->since_ns;
	wait->runqueue_ns = runqueue_ns;
	wait->row = value->id;
	wait->number = member->waits;
	wait->pad = 0;
	bpf_ringbuf_submit(wait, cycle_wakeup());
}

#endif
