/* SPDX-License-Identifier: MIT */
/* beginnings.bpf.h: what has to be remembered of requests from their beginning, until they complete.
 *
 * By the request's address: its memory is reused for the next one, and every beginning overwrites what was there.
 * `started` is thus bounded by the requests that disks have, whatever becomes of a single one. The tool defines
 * `config` before it includes this file.
 */
#ifndef __BEGINNINGS_BPF_H__
#define __BEGINNINGS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "requests.bpf.h"
#include "targets.bpf.h"
#include "window.bpf.h"

#define MAX_DISKS 4096
#define MAX_STARTED 65536

/* Requests that found no room in `started`. */
__u64 started_full = 0;

/* Issued requests of targets, as far as is known, whose memory was used again without our having seen them complete. */
__u64 never_completed = 0;

/* Disks and partitions that were asked for. */
MAP(HASH, wanted_devs, __u32, __u8, 256);

struct disk_key {
	__u64 disk;
	__u32 dev;
	__u32 pad;
};

struct disk {
	/* The kernel does not stamp its requests: we do. */
	__u32 needs_stamp;
	__u32 is_known;
	/* Until when it is known to have been busy. */
	__u64 busy_until_ns;
	__u8 name[32];
};

MAP(HASH, disks, struct disk_key, struct disk, MAX_DISKS);

enum submitter {
	SUBMITTER_OTHER = 0,
	SUBMITTER_WANTED,
	/* Its start was not to be seen: it was before ours, or hidden. */
	SUBMITTER_UNKNOWN,
};

/* What the kernel's request does not say. */
struct started {
	__u64 start_ns;
	__u64 issue_ns;
	__u64 before_ns;
	__u64 sector;
	__u32 bytes;
	/* As submitted: the kernel takes flush flags away where it does their work. */
	__u32 opf;
	__u32 tgid;
	__u32 tid;
	enum submitter submitter;
	__s32 status;
	/* The device gave it back: its next issue is no new request. */
	__u32 is_requeued;
	__u32 pad;
	__u8 comm[16];
};

/* request → its beginning */
MAP(HASH, started, __u64, struct started, MAX_STARTED);

/* bio → when it was submitted, until it has a request */
MAP(LRU_HASH, submitted, __u64, __u64, MAX_STARTED);

static __always_inline bool request_in_cgroup(struct request *rq)
{
	struct cgroup *cgroup = request_cgroup(rq);
	int depth = cgroup->level;

	for (int level = 0; level < MAX_CGROUP_DEPTH && level <= depth; level++)
		if (cgroup_ancestor_id(cgroup, level) == config.cgroup_id)
			return true;
	return false;
}

/* Whose I/O it is; false: not asked for. */
static __always_inline bool find_disk(struct request *rq, struct disk_key *key)
{
	struct gendisk *disk = request_disk(rq);
	__u32 part;

	key->disk = (__u64)disk;
	key->dev = disk_dev(disk);
	key->pad = 0;
	if (!config.by_dev || bpf_map_lookup_elem(&wanted_devs, &key->dev))
		return true;
	part = request_part(rq);
	if (!part || !bpf_map_lookup_elem(&wanted_devs, &part))
		return false;
	key->dev = part;
	return true;
}

static __always_inline bool is_wanted(struct request *rq, struct disk_key *disk)
{
	if (!find_disk(rq, disk))
		return false;
	return !config.cgroup_id || request_in_cgroup(rq);
}

/* In the submitter's own context. */
static __always_inline void note_submitter(struct started *first)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct task_struct *named = config.by_process ? BPF_CORE_READ(task, group_leader) : task;

	first->tgid = tgid_of(targets.pid_namespace, task);
	first->tid = tid_of(targets.pid_namespace, task);
	first->submitter = !config.by_submitter || is_target(task) ? SUBMITTER_WANTED : SUBMITTER_OTHER;
	bpf_core_read(&first->comm, sizeof(first->comm), &named->comm);
}

/* Of a request whose start was not to be seen. */
static __always_inline void note_issuer(struct started *first)
{
	if (!config.has_start)
		note_submitter(first);
	else
		first->submitter = config.by_submitter ? SUBMITTER_UNKNOWN : SUBMITTER_WANTED;
}

static __always_inline void note_before(struct request *rq, struct started *first)
{
	__u64 bio = (__u64)rq->bio;
	__u64 *since;

	if (!(config.phases & 1 << PHASE_BEFORE) || !bio)
		return;
	since = bpf_map_lookup_elem(&submitted, &bio);
	if (!since)
		return;
	if (first->start_ns > *since)
		first->before_ns = first->start_ns - *since;
	bpf_map_delete_elem(&submitted, &bio);
}

static __always_inline void remember(struct request *rq, const struct started *first)
{
	__u64 key = (__u64)rq;
	/* Without tracking a request is forgotten only where its completion had need of this. */
	struct started *last = config.track ? bpf_map_lookup_elem(&started, &key) : NULL;

	/* One that was given back may have been freed: device mapper does so with its clones when the disk below is busy. */
	if (last && last->submitter != SUBMITTER_OTHER && last->issue_ns &&
	    last->issue_ns >= window_start_ns && !last->is_requeued)
		__sync_fetch_and_add(&never_completed, 1);
	if (bpf_map_update_elem(&started, &key, first, BPF_ANY))
		__sync_fetch_and_add(&started_full, 1);
}

/* Whether a look at the queue's flags tells what the kernel stamps; that is, the issue. */
static __always_inline bool knows_stamps(void)
{
	return config.stats_flag && !(config.phases & 1 << PHASE_TOTAL);
}

/* The kernel stamps the start of requests that it accounts (queue/iostats), and the issue where something wants the
 * disk's statistics (writeback throttling does). Where that cannot be seen beforehand, completions tell, and nothing is
 * known before a disk's first one.
 */
static __always_inline bool needs_stamp(struct request *rq, const struct disk_key *where)
{
	struct disk *disk;

	if (config.track || request_op(rq) >= REQ_OP_FIRST_PASSTHROUGH)
		return true;
	if (knows_stamps())
		return !(rq->q->queue_flags >> (config.stats_flag - 1) & 1);
	disk = bpf_map_lookup_elem(&disks, where);
	return !disk || !disk->is_known || disk->needs_stamp;
}

static __always_inline void forget(struct request *rq)
{
	__u64 key = (__u64)rq;

	bpf_map_delete_elem(&started, &key);
}

static __always_inline void request_started(struct request *rq)
{
	struct started first = {};
	struct disk_key disk;

	if (!is_wanted(rq, &disk) || !needs_stamp(rq, &disk))
		return;
	first.start_ns = bpf_ktime_get_ns();
	first.opf = rq->cmd_flags;
	if (config.track) {
		note_submitter(&first);
		note_before(rq, &first);
	}
	remember(rq, &first);
}

/* The request that the device had under this address is gone, and this is the next one; a flush is, whenever it is issued. */
static __always_inline bool is_next(const struct started *last, struct request *rq)
{
	return request_op(rq) == REQ_OP_FLUSH || (last->issue_ns && !last->is_requeued);
}

/* Before 6.5, for want of block_io_start; a requeued request is inserted again. */
static __always_inline void request_inserted(struct request *rq)
{
	__u64 key = (__u64)rq;
	struct started *known = bpf_map_lookup_elem(&started, &key);

	if (!known || is_next(known, rq))
		request_started(rq);
}

static __always_inline void note_requeue(struct request *rq)
{
	__u64 key = (__u64)rq;
	struct started *known = bpf_map_lookup_elem(&started, &key);

	if (known)
		known->is_requeued = 1;
}

/* Flushes are issued without block_io_start; so is everything before 6.5. */
static __always_inline void request_issued(struct request *rq)
{
	__u64 key = (__u64)rq, now;
	struct started *known;
	struct started first = {};
	struct disk_key where;

	/* Cheapest first: this is all that happens in the plain histogram. */
	if (knows_stamps() && !needs_stamp(rq, NULL))
		return;
	if (!is_wanted(rq, &where) || !needs_stamp(rq, &where))
		return;
	now = bpf_ktime_get_ns();
	known = bpf_map_lookup_elem(&started, &key);
	if (known && !is_next(known, rq)) {
		known->issue_ns = now;
		known->is_requeued = 0;
		/* Requests grow until they are issued. */
		if (!known->bytes) {
			known->bytes = rq->__data_len;
			known->sector = rq->__sector;
		}
		return;
	}
	first.start_ns = now;
	first.issue_ns = now;
	first.opf = rq->cmd_flags;
	first.bytes = rq->__data_len;
	first.sector = rq->__sector;
	/* A flush serves several submitters at once; and where starts are to be seen, issues may be a kernel thread's. */
	if (config.track && request_op(rq) != REQ_OP_FLUSH)
		note_issuer(&first);
	remember(rq, &first);
}

static __always_inline void bio_submitted(struct bio *bio)
{
	__u64 key = (__u64)bio, now = bpf_ktime_get_ns();

	bpf_map_update_elem(&submitted, &key, &now, BPF_ANY);
}

/* `bio` is the first part, made for a request of its own; the second part keeps the place of the whole. */
static __always_inline void bio_split(struct bio *bio)
{
	__u64 key = (__u64)bio, whole = (__u64)bio->bi_private;
	__u64 *since = bpf_map_lookup_elem(&submitted, &whole);
	__u64 value;

	if (!since)
		return;
	value = *since;
	bpf_map_update_elem(&submitted, &key, &value, BPF_ANY);
}

#endif
