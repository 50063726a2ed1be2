/* SPDX-License-Identifier: MIT */
/* groups.bpf.h: latencies of the whole machine and of groups, in two halves.
 *
 * What is recorded goes into the half named by `epoch`; user space switches halves, waits until nobody writes into the
 * old one any more, and reads it at leisure (common/hist/src/harvest.rs). The tool defines, before it
 * includes this file, `struct group_id` (what tells groups apart; a multiple of 8 bytes, no padding) and, where it has
 * histograms of everything, `WHOLES`, their number.
 */
#ifndef __GROUPS_BPF_H__
#define __GROUPS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "histogram.bpf.h"
#include "maps.bpf.h"
#include "rows.bpf.h"

#define EPOCHS 2
#define MAX_GROUPS 10240
#define MAX_ROWS 131072

/* 0 or 1: what is recorded now goes there; user space reads the other one. */
__u32 epoch = 0;

/* Latencies of groups that found no room. */
__u64 groups_full = 0;
/* Latencies that are in a group's sum, but in no bucket. */
__u64 buckets_full = 0;

struct sum {
	__u64 count;
	__u64 total_ns;
	__u64 max_ns;
	__u8 comm[16];
};

struct group_key {
	struct group_id id;
	__u32 epoch;
	/* 0 in `groups`. */
	__u32 bucket;
};

_Static_assert(sizeof(struct group_key) == sizeof(struct group_id) + 8, "keys have no padding");

/* group → count, sum, maximum; per CPU, because a maximum cannot be added atomically */
MAP(PERCPU_HASH, groups, struct group_key, struct sum, MAX_GROUPS);

/* (group, bucket) → latencies: a whole histogram per group would be mostly zeros */
MAP(HASH, buckets, struct group_key, __u64, MAX_ROWS);

static __always_inline void add_to_sum(struct sum *sum, __u64 ns)
{
	sum->count++;
	sum->total_ns += ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
}

#ifdef WHOLES
struct hist {
	struct sum sum;
	__u64 buckets[HIST_BUCKETS];
};

/* epoch × histogram → everything */
MAP(PERCPU_ARRAY, wholes, __u32, struct hist, EPOCHS * WHOLES);

static __always_inline void add_to_whole(__u32 now_epoch, __u32 which, __u64 ns)
{
	__u32 index = now_epoch * WHOLES + which;
	struct hist *hist = bpf_map_lookup_elem(&wholes, &index);
	__u32 bucket = hist_bucket(ns);

	if (!hist)
		return;
	add_to_sum(&hist->sum, ns);
	if (bucket < HIST_BUCKETS)
		hist->buckets[bucket]++;
}
#endif

static __always_inline void add_to_bucket(const struct group_key *key)
{
	ADD_TO_ROW(&buckets, key, 1, buckets_full);
}

static __always_inline struct sum *find_group(const struct group_key *key)
{
	return bpf_map_lookup_elem(&groups, key);
}

/* For a group seen for the first time; `first` has its name. */
static __always_inline struct sum *make_group(const struct group_key *key, const struct sum *first)
{
	struct sum *sum;

	bpf_map_update_elem(&groups, key, first, BPF_NOEXIST);
	sum = find_group(key);
	if (!sum)
		__sync_fetch_and_add(&groups_full, 1);
	return sum;
}

/* `key` is of `groups`, `sum` its value. */
static __always_inline void add_to_group(struct group_key *key, struct sum *sum, __u64 ns)
{
	add_to_sum(sum, ns);
	key->bucket = hist_bucket(ns);
	add_to_bucket(key);
}

#endif
