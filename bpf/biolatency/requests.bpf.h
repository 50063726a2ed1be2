/* SPDX-License-Identifier: MIT */
/* requests.bpf.h: what the kernel itself knows about a block request, on every kernel.
 *
 * Pointers come from the tracepoints' own arguments: plain loads, which the verifier lets fault to 0.
 */
#ifndef __REQUESTS_BPF_H__
#define __REQUESTS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define REQ_OP_MASK 0xff
/* The values that have been the same since 4.10; the names of all come from BTF, in user space. */
#define REQ_OP_WRITE 1
#define REQ_OP_WRITE_BIT 1
#define REQ_OP_FLUSH 2
#define REQ_OP_DISCARD 3
/* From here on a driver's own commands, which bypass the scheduler and the disk's statistics. */
#define REQ_OP_FIRST_PASSTHROUGH 32

#define MINOR_BITS 20

/* What /sys/block/DISK/stat tells apart. */
enum request_class {
	CLASS_READ = 0,
	CLASS_WRITE,
	CLASS_DISCARD,
	CLASS_FLUSH,
	CLASS_PASSTHROUGH,
	CLASSES,
};

/* Bits of a request's rq_flags, from BTF: 5f89154e8e9e (6.11) renumbered them, in an enum without a name at first. */
struct request_flags {
	__u32 flush_seq;
	/* 0: not known. */
	__u32 io_stat;
};

const volatile struct request_flags request_flags = {};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct request___pre_5_17 {
	struct gendisk *rq_disk;
};
struct device___hd_struct {
	dev_t devt;
};
struct hd_struct {
	struct device___hd_struct __dev;
};
struct request___pre_5_11 {
	struct hd_struct *part;
};
#pragma clang attribute pop

static __always_inline __u32 request_op(struct request *rq)
{
	return rq->cmd_flags & REQ_OP_MASK;
}

/* Renumbered in 6.0; on kernels before that no operation has the value returned. */
static __always_inline __u32 op_zone_append(void)
{
	if (bpf_core_enum_value_exists(enum req_op, REQ_OP_ZONE_APPEND))
		return bpf_core_enum_value(enum req_op, REQ_OP_ZONE_APPEND);
	return REQ_OP_MASK;
}

static __always_inline enum request_class request_class(__u32 op)
{
	if (op >= REQ_OP_FIRST_PASSTHROUGH)
		return CLASS_PASSTHROUGH;
	if (op == REQ_OP_FLUSH)
		return CLASS_FLUSH;
	if (op == REQ_OP_DISCARD)
		return CLASS_DISCARD;
	return op & REQ_OP_WRITE_BIT ? CLASS_WRITE : CLASS_READ;
}

/* f3fa33acca9f (5.17) moved the disk to the queue. NULL while a SCSI device has none yet. */
static __always_inline struct gendisk *request_disk(struct request *rq)
{
	struct request___pre_5_17 *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return old->rq_disk;
	return rq->q->disk;
}

static __always_inline __u32 disk_dev(struct gendisk *disk)
{
	return (__u32)disk->major << MINOR_BITS | (__u32)disk->first_minor;
}

/* The partition that it was sent to, or the disk; 0 for flushes that the kernel sends itself, which are the disk's.
 * 0d02129e76ed (5.11) made partitions block devices.
 */
static __always_inline __u32 request_part(struct request *rq)
{
	struct request___pre_5_11 *old = (void *)rq;

	if (bpf_core_type_exists(struct hd_struct))
		return old->part->__dev.devt;
	/* `part` is set when the disk keeps statistics only, and after block_io_start. */
	if (bpf_core_field_exists(rq->bio->bi_bdev) && rq->bio)
		return rq->bio->bi_bdev->bd_dev;
	return rq->part->bd_dev;
}

/* The cgroup that its bytes are charged to: the writer's, also where the kernel writes back; 0: nobody's. */
static __always_inline struct cgroup *request_cgroup(struct request *rq)
{
	return rq->bio->bi_blkg->blkcg->css.cgroup;
}

/* The data part of a write that the kernel surrounds with flushes: it will complete once more, without data, when the
 * flush after it is done.
 */
static __always_inline bool is_inside_flush_sequence(struct request *rq)
{
	/* The flushes of the sequence have the flag, too. */
	return rq->rq_flags & request_flags.flush_seq && request_op(rq) != REQ_OP_FLUSH;
}

/* When the request began; 0: the kernel does not account it (queue/iostats off, drivers' commands). Kernels since 6.11 leave
 * the value of the memory's last request there then; before, they cleared it.
 */
static __always_inline __u64 request_start_ns(struct request *rq)
{
	bool is_told = request_flags.io_stat && request_op(rq) != REQ_OP_FLUSH;

	if (is_told && !(rq->rq_flags & request_flags.io_stat))
		return 0;
	return rq->start_time_ns;
}

#endif
