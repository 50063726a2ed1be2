/* SPDX-License-Identifier: MIT */
/* endings.bpf.h: what becomes of a request's times when it, or its data part, is over. */
#ifndef __ENDINGS_BPF_H__
#define __ENDINGS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "beginnings.bpf.h"
#include "disks.bpf.h"
#include "groups.bpf.h"
#include "maps.bpf.h"
#include "window.bpf.h"

struct ending_losses {
	__u64 slow_ring_full;
	__u64 negative;
	/* Requests without the stamp that a histogram needs. */
	__u64 unstamped;
	/* Requests left out because their submission was not seen. */
	__u64 unattributed;
};

struct ending_losses losses = {};

/* Requests that had begun before the window, and are in the histograms. */
__u64 begun_before = 0;

/* One request above the threshold. */
struct slow_io {
	__u64 time_ns;
	__u64 disk;
	__u64 before_ns;
	__u64 queued_ns;
	__u64 device_ns;
	__u64 total_ns;
	__u64 sector;
	__u32 dev;
	__u32 bytes;
	__u32 opf;
	__s32 status;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
};

RING(slow_ios, 1 << 20);

/* Ring buffer records have no map that would name their type. */
const struct slow_io *unused_slow_io __attribute__((unused));

/* One end of a request, or of its data part. */
struct ending {
	struct request *rq;
	struct started *started;
	struct disk_key disk;
	__u64 now;
	/* Of now, from the request's start; 0: unknown. */
	__u64 start_ns;
	__u64 issue_ns;
	__u32 epoch;
	__s32 status;
	enum request_class class;
};

/* As submitted, where that is known. */
static __always_inline __u32 opf_of(const struct ending *end)
{
	__u32 opf = end->rq->cmd_flags;

	/* Else clang makes one load of two kinds of pointers, which the verifier refuses. */
	barrier_var(opf);
	if (end->started)
		opf = end->started->opf;
	return opf;
}

/* Our stamp of the start may be later than the kernel's of the issue, which it rounds down within a plug. */
static __always_inline __u64 queued_ns(const struct ending *end)
{
	return end->start_ns && end->issue_ns > end->start_ns ? end->issue_ns - end->start_ns : 0;
}

static __always_inline void add_to_group_of(const struct ending *end, enum phase phase, __u64 ns)
{
	struct group_key key = { .epoch = end->epoch, .id.phase = phase };
	struct sum *sum, first = {};

	if (config.by_disk) {
		key.id.disk = end->disk.disk;
		key.id.dev = end->disk.dev;
	}
	key.id.opf = opf_of(end);
	if (!config.by_flags)
		key.id.opf &= REQ_OP_MASK;
	if (config.by_cgroup)
		key.id.cgroup = request_cgroup(end->rq)->kn->id;
	if (config.by_process)
		key.id.tgid = end->class == CLASS_FLUSH ? TGID_FLUSH : end->started ? end->started->tgid : 0;
	sum = find_group(&key);
	if (!sum) {
		if (config.by_process && end->started)
			__builtin_memcpy(first.comm, end->started->comm, sizeof(first.comm));
		sum = make_group(&key, &first);
	}
	if (sum)
		add_to_group(&key, sum, ns);
}

static __always_inline void send_slow_io(const struct ending *end, enum phase phase, __u64 ns)
{
	const struct started *started = end->started;
	struct slow_io *slow;

	if (!config.slower_ns || config.slower_phase != phase || ns < config.slower_ns)
		return;
	slow = bpf_ringbuf_reserve(&slow_ios, sizeof(*slow), 0);
	if (!slow) {
		__sync_fetch_and_add(&losses.slow_ring_full, 1);
		return;
	}
	__builtin_memset(slow, 0, sizeof(*slow));
	slow->time_ns = end->now;
	slow->disk = end->disk.disk;
	slow->dev = end->disk.dev;
	slow->total_ns = end->start_ns ? end->now - end->start_ns : 0;
	slow->device_ns = end->issue_ns ? end->now - end->issue_ns : 0;
	slow->queued_ns = queued_ns(end);
	slow->status = end->status;
	slow->opf = opf_of(end);
	slow->sector = end->rq->__sector;
	slow->bytes = end->rq->__data_len;
	if (started) {
		slow->before_ns = started->before_ns;
		slow->sector = started->sector;
		slow->bytes = started->bytes;
		slow->tgid = started->tgid;
		slow->tid = started->tid;
		__builtin_memcpy(slow->comm, started->comm, sizeof(slow->comm));
	}
	bpf_ringbuf_submit(slow, 0);
}

static __always_inline void record(const struct ending *end, enum phase phase, __u64 ns)
{
	send_slow_io(end, phase, ns);
	if (config.phases & 1 << phase)
		add_to_group_of(end, phase, ns);
}

/* The device has done its part. */
static __always_inline void device_done(const struct ending *end)
{
	if (!(config.phases & ~(1 << PHASE_TOTAL)) && !config.track)
		return;
	if (!end->issue_ns) {
		__sync_fetch_and_add(&losses.unstamped, 1);
		return;
	}
	if (end->now < end->issue_ns) {
		__sync_fetch_and_add(&losses.negative, 1);
		return;
	}
	record(end, PHASE_DEVICE, end->now - end->issue_ns);
	if (end->start_ns)
		record(end, PHASE_QUEUED, queued_ns(end));
	if (end->start_ns && end->rq->alloc_time_ns && end->rq->alloc_time_ns <= end->start_ns)
		record(end, PHASE_BEFORE, end->start_ns - end->rq->alloc_time_ns);
	else if (end->started && end->started->before_ns)
		record(end, PHASE_BEFORE, end->started->before_ns);
}

static __always_inline void total_done(const struct ending *end, struct disk_sum *sum)
{
	if (!end->start_ns || end->now < end->start_ns) {
		if (config.phases & 1 << PHASE_TOTAL)
			__sync_fetch_and_add(end->start_ns ? &losses.negative : &losses.unstamped, 1);
		return;
	}
	sum->total_ns[end->class] += end->now - end->start_ns;
	add_busy(sum, &end->disk, end->start_ns, end->now);
	if (end->start_ns < window_start_ns)
		__sync_fetch_and_add(&begun_before, 1);
	record(end, PHASE_TOTAL, end->now - end->start_ns);
}

/* Whether the kernel will do its account of this request; flushes have one of their own. */
static __always_inline bool has_done_event(struct request *rq, enum request_class class)
{
	return config.total_at_done && request_start_ns(rq) && class < CLASS_FLUSH;
}

#endif
