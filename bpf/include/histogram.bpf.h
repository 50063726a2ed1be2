/* SPDX-License-Identifier: MIT */
/* histogram.bpf.h: log-linear buckets, 16 in every power of two; common/hist/src has the other end. */
#ifndef __HISTOGRAM_BPF_H__
#define __HISTOGRAM_BPF_H__

#include "branchless.bpf.h"

#define HIST_SUB_BITS 4
#define HIST_MAX_BITS 48
#define HIST_BUCKETS ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* Position of the highest bit; 0 for 0. Of values below 2^63. BPF lacks __builtin_clzll. */
static __always_inline __u32 hist_log2(__u64 value)
{
	__u32 bit, step;

	bit = is_below(0xffffffffULL, value) << 5;
	value >>= bit;
	step = is_below(0xffff, value) << 4;
	value >>= step;
	bit |= step;
	step = is_below(0xff, value) << 3;
	value >>= step;
	bit |= step;
	step = is_below(0xf, value) << 2;
	value >>= step;
	bit |= step;
	step = is_below(0x3, value) << 1;
	value >>= step;
	bit |= step;
	return bit | (value >> 1);
}

/* Below HIST_BUCKETS. Values below 16 have a bucket each; 2^48 ns and more share the last one. */
static __always_inline __u32 hist_bucket(__u64 value)
{
	const __u64 largest = (1ULL << HIST_MAX_BITS) - 1;
	__u32 shift;

	/* From 2^63 on all bits are set first. */
	value = smaller_of((value | -(value >> 63)) & ~(1ULL << 63), largest);
	shift = larger_of(hist_log2(value), HIST_SUB_BITS) - HIST_SUB_BITS;
	return (shift << HIST_SUB_BITS) + (__u32)(value >> shift);
}

#endif
