/* SPDX-License-Identifier: MIT */
/* stack_limit.bpf.h: stacks that are left out to keep within a budget (--max-overhead). */
#ifndef __STACK_LIMIT_BPF_H__
#define __STACK_LIMIT_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* User space sets it while little of the budget is left. */
__u32 without_stacks = 0;

__u64 stacks_left_out = 0;

/* True: the stack that is wanted here is not to be walked, and counted so. */
static __always_inline bool leaves_out_stack(void)
{
	if (!without_stacks)
		return false;
	__sync_fetch_and_add(&stacks_left_out, 1);
	return true;
}

#endif
