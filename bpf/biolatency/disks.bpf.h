/* SPDX-License-Identifier: MIT */
/* disks.bpf.h: accounts of each disk, in the two halves of groups.bpf.h. */
#ifndef __DISKS_BPF_H__
#define __DISKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "beginnings.bpf.h"
#include "maps.bpf.h"
#include "rows.bpf.h"
#include "window.bpf.h"

/* Requests of disks, or errors, that found no room. */
__u64 disks_full = 0;

struct disk_epoch {
	__u64 disk;
	__u32 dev;
	__u32 epoch;
};

struct disk_sum {
	__u64 requests[CLASSES];
	__u64 bytes[CLASSES];
	/* From start to completion. */
	__u64 total_ns[CLASSES];
	/* With anything between start and completion; at least. */
	__u64 busy_ns;
	__u64 partial;
	__u64 requeued;
};

MAP(PERCPU_HASH, disk_sums, struct disk_epoch, struct disk_sum, 2 * MAX_DISKS);

struct error_key {
	__u64 disk;
	__u32 dev;
	__u32 epoch;
	/* blk_status_t; before 5.16 a negative errno. */
	__s32 status;
	__u32 class;
};

MAP(HASH, errors, struct error_key, __u64, 4096);

static __always_inline struct disk *make_disk(const struct disk_key *key)
{
	struct gendisk *named = (struct gendisk *)key->disk;
	struct disk first = {};
	struct disk *disk;

	bpf_core_read(&first.name, sizeof(first.name), &named->disk_name);
	bpf_map_update_elem(&disks, key, &first, BPF_NOEXIST);
	disk = bpf_map_lookup_elem(&disks, key);
	if (!disk)
		__sync_fetch_and_add(&disks_full, 1);
	return disk;
}

static __always_inline struct disk_sum *disk_sum_of(const struct disk_key *key, __u32 now_epoch)
{
	struct disk_epoch half = { .disk = key->disk, .dev = key->dev, .epoch = now_epoch };
	struct disk_sum *sum = bpf_map_lookup_elem(&disk_sums, &half);
	struct disk_sum first = {};

	if (sum)
		return sum;
	make_disk(key);
	bpf_map_update_elem(&disk_sums, &half, &first, BPF_NOEXIST);
	sum = bpf_map_lookup_elem(&disk_sums, &half);
	if (!sum)
		__sync_fetch_and_add(&disks_full, 1);
	return sum;
}

/* A request was there in [start, now). Requests end in order: what is new is what lies after the end of the last one. A
 * request longer than those that came and went meanwhile does not close the gaps between them, so this is a lower bound.
 * (The kernel's own count, in ticks of its clock, is up to 20 times off for short requests.) Two CPUs at the very same time
 * may count a moment twice.
 */
static __always_inline void add_busy(struct disk_sum *sum, const struct disk_key *key, __u64 start_ns, __u64 now)
{
	struct disk *disk = bpf_map_lookup_elem(&disks, key);
	__u64 until;

	if (!disk)
		return;
	until = disk->busy_until_ns;
	if (until < window_start_ns)
		until = window_start_ns;
	if (start_ns < until)
		start_ns = until;
	if (now <= start_ns)
		return;
	sum->busy_ns += now - start_ns;
	disk->busy_until_ns = now;
}

static __always_inline void add_error(const struct disk_key *disk, __u32 now_epoch, enum request_class class, __s32 status)
{
	struct error_key key = {
		.disk = disk->disk,
		.dev = disk->dev,
		.epoch = now_epoch,
		.status = status,
		.class = class,
	};

	ADD_TO_ROW(&errors, &key, 1, disks_full);
}

#endif
