/* SPDX-License-Identifier: MIT */
/* glob.bpf.h: match a task's name against a pattern compiled by common/session/src/glob.rs (Shift-And). */
#ifndef __GLOB_BPF_H__
#define __GLOB_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Read through a volatile pointer only: clang knows the constant it was compiled with, user space fills in another. */
struct glob {
	/* Bit i of accept[b]: position i of the pattern takes byte b. */
	__u32 accept[256];
	/* Bit i: position i is a star. */
	__u32 star;
	/* The state in which the whole pattern has matched. */
	__u32 final_mask;
};

/* A star may also match nothing. */
static __always_inline __u32 glob_close(const volatile struct glob *glob, __u32 state)
{
	return state | ((state & glob->star) << 1);
}

static __always_inline bool glob_match(const volatile struct glob *glob, const char comm[16])
{
	__u32 state = glob_close(glob, 1);

	for (int i = 0; i < 16; i++) {
		__u8 byte = comm[i];

		if (!byte)
			break;
		state = glob_close(glob, ((state & glob->accept[byte]) << 1) | (state & glob->star));
	}
	return state & glob->final_mask;
}

#endif
