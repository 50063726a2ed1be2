/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* log.bpf.h: a log of events, one after the other, with nothing concluded from them. */
#ifndef __LOG_BPF_H__
#define __LOG_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct event {
	/* CLOCK_MONOTONIC. */
	__u64 ns;
	/* What it is about, as each kind says. */
	__u64 object;
	__u64 detail;
	__u32 cpu;
	/* enum kind */
	__u32 kind;
	/* Thread that it is about; 0: none. */
	__u32 thread;
	/* Another one. */
	__u32 other;
};

const struct event *unused_event __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 << 20);
} events SEC(".maps");

/* The log is no oracle if there are any. */
__u64 lost = 0;

/* 0 until the log is wanted. */
__u32 is_on = 0;

static __always_inline void note(const struct event *what)
{
	struct event *event;

	if (!is_on)
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	*event = *what;
	event->cpu = bpf_get_smp_processor_id();
	event->ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif
