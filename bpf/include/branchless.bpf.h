/* SPDX-License-Identifier: MIT */
/* branchless.bpf.h: choices that the verifier need not follow both ways: each branch doubles the paths behind it.
 *
 * Values are below 2^63, as times and lengths are. BPF has no instruction that sets a register by a comparison: clang makes a branch of
 * every `a < b ? a : b`.
 */
#ifndef __BRANCHLESS_BPF_H__
#define __BRANCHLESS_BPF_H__

/* 1 if `a` is less than `b`, else 0. */
static __always_inline __u64 is_below(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	/* Else clang sees what this is. */
	__asm__ volatile("" : "+r"(difference));
	return difference >> 63;
}

static __always_inline __u64 larger_of(__u64 a, __u64 b)
{
	return a + ((b - a) & -is_below(a, b));
}

static __always_inline __u64 smaller_of(__u64 a, __u64 b)
{
	return a + ((b - a) & -is_below(b, a));
}

/* An instant that is not known yet, 0, becomes one that is never reached: 2^63. */
static __always_inline __u64 known_or_never(__u64 ns)
{
	return ((ns - 1) & ~(1ULL << 63)) + 1;
}

#endif
