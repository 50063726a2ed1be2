/* SPDX-License-Identifier: MIT */
/* stall_windows.bpf.h: what counts of a time when a collection with a budget is cut into windows.
 *
 * Between windows nobody sees what tasks do. So whatever is known of a task or a CPU has the number of its window, and is
 * looked up anew when that is another one.
 */
#ifndef __STALL_WINDOWS_BPF_H__
#define __STALL_WINDOWS_BPF_H__

#include "vmlinux.h"
#include "window.bpf.h"

/* The collection is cut into windows. Otherwise all time counts, and user space takes differences. */
const volatile __u32 in_windows = 0;

/* Grows when a window opens, and when it is over: odd in windows. */
__u32 window = 0;

static __always_inline bool is_window(__u32 number)
{
	return number & 1;
}

/* Beside windows programs are attached and detached one by one: what some of them see there makes no sense. */
static __always_inline bool counts_at(__u64 now)
{
	__u64 end = window_end_ns;

	/* At its very end stock is taken. */
	return !in_windows || (window_start_ns && now >= window_start_ns && (!end || now <= end));
}

/* How much of [since, now) counts, ns. */
static __always_inline __u64 counted_ns(__u64 since, __u64 now)
{
	if (in_windows) {
		__u64 start = window_start_ns, end = window_end_ns;

		if (!start)
			return 0;
		if (since < start)
			since = start;
		if (end && now > end)
			now = end;
	}
	return now > since ? now - since : 0;
}

#endif
