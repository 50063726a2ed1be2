/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* ticks.bpf.h: whom a clock of the CPU's finds there. */
#ifndef __TICKS_BPF_H__
#define __TICKS_BPF_H__

#include "log.bpf.h"
#include <bpf/bpf_helpers.h>

enum {
	/* The clock finds `thread`. */
	TICK = 12,
};

SEC("?perf_event")
int log_tick(void *ctx)
{
	struct event event = {
		.kind = TICK,
		.thread = (__u32)bpf_get_current_pid_tgid(),
	};

	note(&event);
	return 0;
}

#endif
