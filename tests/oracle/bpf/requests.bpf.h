/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* requests.bpf.h: block requests on their way to a device and back. */
#ifndef __REQUESTS_BPF_H__
#define __REQUESTS_BPF_H__

#include "log.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Of all: `object` is the request's address, `second` and `third` the kernel's stamps of its start and issue, `other` its disk (DISK_OF), `detail` its
 * operation, IN_FLUSH for a part of a flush sequence, and from bit 32 on the bytes that complete.
 */
enum {
	/* It is given to the driver. */
	ISSUED = 8,
	/* Some of it has completed. */
	COMPLETED = 9,
	/* The kernel accounts for all of it (Linux 6.5). */
	DONE = 10,
	/* It begins to exist (Linux 6.5). */
	STARTED = 11,
};

#define IN_FLUSH (1 << 8)
#define OPERATION 0xff
#define DISK_OF(disk) ((__u32)(disk)->major << 20 | (__u32)(disk)->first_minor)

/* 5f89154e8e9e (6.11) made the flags an enum, which has had a name since 6.14. */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
};

static __always_inline __u32 flush_flag(void)
{
	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ))
		return 1 << bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
	return 1 << 4;
}

static __always_inline void note_request(__u32 kind, struct request *rq, __u32 bytes)
{
	struct event event = {
		.kind = kind,
		.object = (__u64)rq,
		.second = rq->start_time_ns,
		.third = rq->io_start_time_ns,
		.other = DISK_OF(rq->q->disk),
		.detail = (__u64)bytes << 32 | (rq->rq_flags & flush_flag() ? IN_FLUSH : 0) | (rq->cmd_flags & OPERATION),
	};

	note(&event);
}

SEC("?tp_btf/block_io_start")
int BPF_PROG(log_started, struct request *rq)
{
	note_request(STARTED, rq, 0);
	return 0;
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(log_issued, struct request *rq)
{
	note_request(ISSUED, rq, 0);
	return 0;
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(log_completed, struct request *rq, int error, unsigned int bytes)
{
	note_request(COMPLETED, rq, bytes);
	return 0;
}

SEC("?tp_btf/block_io_done")
int BPF_PROG(log_done, struct request *rq)
{
	note_request(DONE, rq, 0);
	return 0;
}

#endif
