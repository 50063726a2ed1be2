/* SPDX-License-Identifier: MIT */
/* offcpu_lengths.bpf.h: how long waits took, by the row that they are in: as a histogram's buckets, those that are not empty. */
#ifndef __OFFCPU_LENGTHS_BPF_H__
#define __OFFCPU_LENGTHS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "histogram.bpf.h"
#include "maps.bpf.h"
#include "offcpu_phases.bpf.h"
#include "rows.bpf.h"

#define MAX_LENGTHS 131072

/* Bits of a key that are the bucket; above them is the row's id, or a process's in QUEUE_LENGTHS. */
#define LENGTH_BUCKET_BITS 10
_Static_assert(HIST_BUCKETS <= 1 << LENGTH_BUCKET_BITS, "a bucket has room");
/* Times in the run queue after a wait for something else. */
#define QUEUE_LENGTHS (1ULL << 63)
/* Bits of a row's id that are the CPU. */
#define ROW_CPU_BITS 13

/* id and bucket → waits */
MAP(HASH, lengths, __u64, __u64, MAX_LENGTHS);

static __always_inline void add_length(__u64 id, __u64 ns)
{
	__u64 key = id << LENGTH_BUCKET_BITS | hist_bucket(ns);

	ADD_TO_ROW(&lengths, &key, 1, losses.lengths_full);
}

/* No other row's: 5.10 has no atomic add that tells. */
static __always_inline __u64 new_row_id(void)
{
	struct offcputime_totals *sums = totals_here();

	return sums ? ++sums->rows << ROW_CPU_BITS | bpf_get_smp_processor_id() : 0;
}

/* Lengths of a wait in a row that has an id: until it was over, and in the run queue after that. */
static __always_inline void add_lengths(__u64 row, __u32 tgid, __u64 blocked_ns, __u64 runqueue_ns)
{
	if (!blocked_ns) {
		add_length(row, runqueue_ns);
		return;
	}
	add_length(row, blocked_ns);
	if (runqueue_ns)
		add_length(QUEUE_LENGTHS >> LENGTH_BUCKET_BITS | tgid, runqueue_ns);
}

#endif
