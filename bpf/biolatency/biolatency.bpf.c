/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* biolatency: how long block I/O takes, queued and in the device; how busy disks are; what failed.
 *
 * A request's times are the kernel's own: start_time_ns (the request exists and is accounted), io_start_time_ns (given
 * to the driver), and block_rq_complete. So the plain histogram needs no state at all, and requests that were under way
 * when tracing began are complete, too. Where the kernel keeps no stamps (queue/iostats off, nobody who wants
 * statistics, a driver's own commands), and for what it does not know (submitter, flags as sent, time before the
 * request), `started` remembers requests by their address; a request's memory is reused for the next one, and every
 * beginning overwrites what was there.
 *
 * What completes how:
 *   partial      nr_bytes is less than what is left: bytes count, the request goes on.
 *   flush        a request of its own (REQ_OP_FLUSH), never inserted, no submitter.
 *   write with flush before or after: its data part completes inside the sequence: device time; then once more,
 *                without data: the whole. A write of nothing (fsync) has a whole only.
 *   merged       never completes; the request that it went into does.
 *   requeued     is issued again; the last issue counts, what was before is queueing.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "window.bpf.h"

enum phase {
	/* From issue to completion. */
	PHASE_DEVICE = 0,
	/* From the request's start to its issue: plug list, scheduler, dispatch queue. */
	PHASE_QUEUED,
	/* From the bio's submission to the request's start: waiting for a request. */
	PHASE_BEFORE,
	/* From the request's start to its completion. */
	PHASE_TOTAL,
};

/* What a histogram is of; what was not asked for is 0. */
struct group_id {
	__u64 disk;
	__u64 cgroup;
	/* The partition, if partitions were asked for, else the disk. */
	__u32 dev;
	/* Operation, and flags where these were asked for. */
	__u32 opf;
	__u32 tgid;
	__u32 phase;
};

/* Whose flushes are: several submitters' at once. */
#define TGID_FLUSH 0xffffffff

#include "groups.bpf.h"

struct biolatency_config {
	/* Bits of 1 << enum phase. */
	__u32 phases;
	__u32 by_disk;
	__u32 by_flags;
	__u32 by_process;
	__u32 by_cgroup;
	/* `wanted_devs` chooses. */
	__u32 by_dev;
	/* Submitters are chosen. */
	__u32 by_submitter;
	/* What the kernel does not know about a request is wanted. */
	__u32 track;
	/* Requests at least this long are sent one by one; 0: none. */
	__u64 slower_ns;
	/* The phase that it is compared with. */
	enum phase slower_phase;
	/* There is block_io_start. */
	__u32 has_start;
	/* block_io_done, where the kernel does its own account, ends PHASE_TOTAL. */
	__u32 total_at_done;
	/* The bit of QUEUE_FLAG_STATS, plus 1; 0: not known. */
	__u32 stats_flag;
	/* cgroup v2 that requests are charged to, or below it; 0: any. */
	__u64 cgroup_id;
};

const volatile struct biolatency_config config = {};

#include "beginnings.bpf.h"
#include "disks.bpf.h"
#include "endings.bpf.h"
#include "follow.bpf.h"

/* Stamps of the kernel's first, else ours. */
static __always_inline void find_beginning(struct ending *end, struct request *rq, bool has_device_part)
{
	__u64 key = (__u64)rq;

	end->start_ns = request_start_ns(rq);
	end->issue_ns = rq->io_start_time_ns;
	if (config.track || (!end->start_ns && config.phases & 1 << PHASE_TOTAL) || (has_device_part && !end->issue_ns))
		end->started = bpf_map_lookup_elem(&started, &key);
	if (!end->started)
		return;
	if (!end->start_ns)
		end->start_ns = end->started->start_ns;
	if (!end->issue_ns)
		end->issue_ns = end->started->issue_ns;
}

/* What needs_stamp has to know, on kernels where it cannot see that. */
static __always_inline void learn_stamps(const struct ending *end, bool has_device_part)
{
	__u32 stamp = config.phases & 1 << PHASE_TOTAL ? !request_start_ns(end->rq) : !end->rq->io_start_time_ns;
	struct disk *disk;

	if (config.track || !has_device_part || end->class >= CLASS_FLUSH || knows_stamps())
		return;
	disk = bpf_map_lookup_elem(&disks, &end->disk);
	if (!disk)
		disk = make_disk(&end->disk);
	if (disk && (!disk->is_known || disk->needs_stamp != stamp)) {
		disk->needs_stamp = stamp;
		disk->is_known = 1;
	}
}

static __always_inline bool is_submitter_wanted(const struct ending *end)
{
	if (!config.by_submitter)
		return true;
	if (end->started && end->started->submitter != SUBMITTER_UNKNOWN)
		return end->started->submitter == SUBMITTER_WANTED;
	/* Flushes are nobody's; what began before the window is no loss. */
	if (end->class != CLASS_FLUSH && end->start_ns >= window_start_ns)
		__sync_fetch_and_add(&losses.unattributed, 1);
	return false;
}

static __always_inline void account(struct ending *end, unsigned int nr_bytes, bool is_inside, bool has_device_part)
{
	struct disk_sum *sum = disk_sum_of(&end->disk, end->epoch);

	if (!sum)
		return;
	sum->bytes[end->class] += nr_bytes;
	if (end->status && !is_inside)
		add_error(&end->disk, end->epoch, end->class, end->status);
	if (nr_bytes < end->rq->__data_len) {
		sum->partial++;
		return;
	}
	if (has_device_part)
		device_done(end);
	if (is_inside)
		return;
	sum->requests[end->class]++;
	if (end->started)
		end->started->status = end->status;
	if (!has_done_event(end->rq, end->class))
		total_done(end, sum);
}

/* Some kernels' ends of a flush sequence: a write without data is a whole, whose parts have been seen before. */
static __always_inline bool is_whole_of_sequence(struct request *rq)
{
	__u32 op = request_op(rq);

	return !rq->__data_len && (op == REQ_OP_WRITE || op == op_zone_append());
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	struct ending end = { .rq = rq, .now = bpf_ktime_get_ns(), .status = error, .epoch = epoch & 1 };
	bool is_inside = is_inside_flush_sequence(rq);
	bool has_device_part = is_inside || !is_whole_of_sequence(rq);

	end.class = request_class(request_op(rq));
	if (in_window(end.now) && is_wanted(rq, &end.disk)) {
		find_beginning(&end, rq, has_device_part);
		learn_stamps(&end, has_device_part);
		if (is_submitter_wanted(&end))
			account(&end, nr_bytes, is_inside, has_device_part);
	}
	if (is_inside || nr_bytes < rq->__data_len || has_done_event(rq, end.class))
		return 0;
	if (config.track || end.started)
		forget(rq);
	return 0;
}

/* Its bios are gone by now, and with them the cgroup. */
SEC("?tp_btf/block_io_done")
int BPF_PROG(block_io_done, struct request *rq)
{
	struct ending end = { .rq = rq, .now = bpf_ktime_get_ns(), .epoch = epoch & 1 };
	struct disk_sum *sum;

	end.class = request_class(request_op(rq));
	if (is_inside_flush_sequence(rq) || !has_done_event(rq, end.class))
		return 0;
	if (in_window(end.now) && find_disk(rq, &end.disk)) {
		find_beginning(&end, rq, false);
		sum = disk_sum_of(&end.disk, end.epoch);
		if (sum && (!config.by_submitter || (end.started && end.started->submitter == SUBMITTER_WANTED))) {
			if (end.started)
				end.status = end.started->status;
			total_done(&end, sum);
		}
	}
	if (config.track)
		forget(rq);
	return 0;
}

static __always_inline void request_requeued(struct request *rq)
{
	struct disk_sum *sum;
	struct disk_key disk;

	note_requeue(rq);
	if (!in_window(bpf_ktime_get_ns()) || !is_wanted(rq, &disk))
		return;
	sum = disk_sum_of(&disk, epoch & 1);
	if (sum)
		sum->requeued++;
}

SEC("?tp_btf/block_io_start")
int BPF_PROG(block_io_start, struct request *rq)
{
	request_started(rq);
	return 0;
}

/* a54895fa057c (5.11, and 5.10.137) took the queue out of these tracepoints' arguments: each has a program for either. */
#define BLOCK_PROG(name, does, subject, ...)                                      \
	SEC("?tp_btf/" #name)                                                      \
	int BPF_PROG(name, subject, ##__VA_ARGS__)                                 \
	{                                                                          \
		does;                                                              \
		return 0;                                                          \
	}                                                                          \
	SEC("?tp_btf/" #name)                                                      \
	int BPF_PROG(name##_pre_5_11, struct request_queue *q, subject, ##__VA_ARGS__) \
	{                                                                          \
		does;                                                              \
		return 0;                                                          \
	}

BLOCK_PROG(block_rq_insert, request_inserted(rq), struct request *rq)
BLOCK_PROG(block_rq_issue, request_issued(rq), struct request *rq)
BLOCK_PROG(block_rq_merge, forget(rq), struct request *rq)
BLOCK_PROG(block_rq_requeue, request_requeued(rq), struct request *rq)
BLOCK_PROG(block_bio_queue, bio_submitted(bio), struct bio *bio)
BLOCK_PROG(block_split, bio_split(bio), struct bio *bio, unsigned int sector)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
