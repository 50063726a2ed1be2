/* SPDX-License-Identifier: MIT */
/* histogram.bpf.h: log-linear buckets, 16 in every power of two; common/trace/src/histogram has the other end. */
#ifndef __HISTOGRAM_BPF_H__
#define __HISTOGRAM_BPF_H__

#define HIST_SUB_BITS 4
#define HIST_MAX_BITS 48
#define HIST_BUCKETS ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* Position of the highest bit; 0 for 0. Without branches, and without __builtin_clzll, which BPF lacks. */
static __always_inline __u32 hist_log2(__u64 value)
{
	__u32 bit, step;

	bit = (value > 0xffffffffULL) << 5;
	value >>= bit;
	step = (value > 0xffff) << 4;
	value >>= step;
	bit |= step;
	step = (value > 0xff) << 3;
	value >>= step;
	bit |= step;
	step = (value > 0xf) << 2;
	value >>= step;
	bit |= step;
	step = (value > 0x3) << 1;
	value >>= step;
	bit |= step;
	return bit | (value >> 1);
}

/* Below HIST_BUCKETS. Values below 16 have a bucket each; 2^48 ns and more share the last one. */
static __always_inline __u32 hist_bucket(__u64 value)
{
	const __u64 largest = (1ULL << HIST_MAX_BITS) - 1;
	__u32 bits, shift;

	if (value > largest)
		value = largest;
	bits = hist_log2(value);
	shift = bits > HIST_SUB_BITS ? bits - HIST_SUB_BITS : 0;
	return (shift << HIST_SUB_BITS) + (__u32)(value >> shift);
}

#endif
