/* SPDX-License-Identifier: MIT */
/* window.bpf.h: when events count. */
#ifndef __WINDOW_BPF_H__
#define __WINDOW_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "branchless.bpf.h"

/* 0 until user space opens the window, now or at an instant to come; nothing is timed before. */
__u64 window_start_ns = 0;
/* 0 until user space closes the window; later events are not counted. */
__u64 window_end_ns = 0;

/* The window closes by the clock, and user space has not come yet: late events close what was open at its end. */
__u32 takes_late = 0;

/* The window is over. */
static __always_inline bool has_ended(__u64 now)
{
	return !is_below(now, known_or_never(window_end_ns));
}

static __always_inline bool in_window(__u64 now)
{
	return is_below(now, known_or_never(window_end_ns)) & ~is_below(now, known_or_never(window_start_ns));
}

/* Between the window's end and the moment at which user space has taken stock of the targets. */
static __always_inline bool is_late(__u64 now)
{
	return window_start_ns && has_ended(now);
}

#endif
