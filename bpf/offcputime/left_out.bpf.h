/* SPDX-License-Identifier: MIT */
/* left_out.bpf.h: what a collection with a budget does without before it does without time: the user stacks of short waits,
 * which may cost several times what all else about a wait does, and hold little of the time.
 */
#ifndef __LEFT_OUT_BPF_H__
#define __LEFT_OUT_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"

/* Waits shorter than this get no user stack; 0: all do. */
__u64 stacks_from_ns = 0;

/* A sleeping thread's wait counts for no more beside them: the sleepers of a whole machine would hide any load. */
#define LEFT_OUT_LONG_NS 10000000

/* Counted while some get none. */
struct left_out_sums {
	__u64 waits;
	__u64 ns;
	/* Of all waits, each up to LEFT_OUT_LONG_NS. */
	__u64 of_ns;
};

PER_CPU(left_out, struct left_out_sums);

/* Whether a wait that is over and took `length_ns` is to go without; counted. */
static __always_inline bool goes_without_stack(__u64 length_ns)
{
	__u64 from_ns = *(volatile __u64 *)&stacks_from_ns;
	struct left_out_sums *sums;
	__u32 zero = 0;

	if (!from_ns)
		return false;
	sums = bpf_map_lookup_elem(&left_out, &zero);
	if (!sums)
		return false;
	sums->of_ns += length_ns < LEFT_OUT_LONG_NS ? length_ns : LEFT_OUT_LONG_NS;
	if (length_ns >= from_ns)
		return false;
	sums->waits++;
	sums->ns += length_ns;
	return true;
}

#endif
