/* SPDX-License-Identifier: MIT */
/* offcpu_row.bpf.h: intervals of one thread, stacks and wait. */
#ifndef __OFFCPU_ROW_BPF_H__
#define __OFFCPU_ROW_BPF_H__

#include "vmlinux.h"
#include "waits.bpf.h"

struct offcputime_key {
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u64 kernel_stack;
	__u64 user_stack;
	__u64 waker;
	struct wait_call call;
	__u8 wait_flags;
	/* User space knows the user stack: it was told of this wait before the window. */
	__u8 is_known;
	/* The wait was open at the window's end. */
	__u8 is_open;
	__u8 pad[5];
};

struct offcputime_value {
	__u64 blocked_ns;
	__u64 runqueue_ns;
	__u64 count;
	/* The row in `lengths`; 0: they are not asked for. */
	__u64 id;
	/* User space knows the row's id. */
	__u64 is_told;
};

#endif
