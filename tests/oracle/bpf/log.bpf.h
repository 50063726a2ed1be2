/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* log.bpf.h: a log of events, one after the other, with nothing concluded from them.
 *
 * Each CPU has a part of one array for itself: the log takes no lock, for a tool would see who waits for it.
 */
#ifndef __LOG_BPF_H__
#define __LOG_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* User space refuses more. */
#define MAX_CPUS 512

struct event {
	/* CLOCK_MONOTONIC. */
	__u64 ns;
	/* What it is about, as each kind says. */
	__u64 object;
	__u64 second;
	__u64 third;
	__u64 detail;
	__u32 cpu;
	/* Thread that it is about; 0: none. */
	__u32 thread;
	/* Another one. */
	__u32 other;
	/* Each engine has its own numbers; 0 until the rest is there. */
	__u32 kind;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* User space says how many. */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

/* Of each CPU's part. */
const volatile __u32 events_of_cpu = 0;

/* Events of each CPU, those that found no room included. */
__u64 noted[MAX_CPUS] = {};

/* 0 until the log is wanted. */
__u32 is_on = 0;

/* Switches, calls and locks of its threads, and of those of processes that it started, as long as these have their parents; 0: all. */
const volatile __u32 process = 0;

#define GENERATIONS 4

static __always_inline bool is_meant(struct task_struct *task)
{
	struct task_struct *of = task->group_leader;

	if (!process)
		return true;
	for (int back = 0; back < GENERATIONS; back++) {
		if (of->tgid == process)
			return true;
		of = of->real_parent->group_leader;
	}
	return false;
}

static __always_inline void note(const struct event *what)
{
	__u32 cpu = bpf_get_smp_processor_id(), index;
	struct event *event;
	__u64 at;

	if (!is_on || cpu >= MAX_CPUS)
		return;
	at = __sync_fetch_and_add(&noted[cpu], 1);
	if (at >= events_of_cpu)
		return;
	index = cpu * events_of_cpu + at;
	event = bpf_map_lookup_elem(&events, &index);
	if (!event)
		return;
	event->object = what->object;
	event->second = what->second;
	event->third = what->third;
	event->detail = what->detail;
	event->thread = what->thread;
	event->other = what->other;
	event->cpu = cpu;
	event->ns = bpf_ktime_get_ns();
	barrier();
	*(volatile __u32 *)&event->kind = what->kind;
}

#endif
