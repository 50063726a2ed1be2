/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* oracle: a log of what the scheduler does, event by event, with nothing concluded from it.
 *
 * Probes of a tracepoint run in the order in which they were attached (kernel/tracepoint.c, func_add). A log attached before a
 * tool and one attached after it have every time that the tool can have seen between theirs.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum kind {
	SWITCH = 1,
	WAKEUP = 2,
};

struct event {
	/* CLOCK_MONOTONIC. */
	__u64 ns;
	__u32 cpu;
	/* enum kind */
	__u32 kind;
	/* Thread that leaves the CPU. */
	__u32 prev;
	/* Thread that runs next, or is made runnable. */
	__u32 next;
	/* `prev` goes on wanting the CPU. */
	__u32 runnable;
	__u32 pad;
};

const struct event *unused_event __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

/* The log is no oracle if there are any. */
__u64 lost = 0;

/* 0 until the log is wanted. */
__u32 is_on = 0;

static __always_inline void note(__u32 kind, __u32 prev, __u32 next, bool runnable)
{
	struct event *event;

	if (!is_on)
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	event->cpu = bpf_get_smp_processor_id();
	event->kind = kind;
	event->prev = prev;
	event->next = next;
	event->runnable = runnable;
	event->pad = 0;
	event->ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(log_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	note(SWITCH, prev->pid, next->pid, preempt || !prev_state);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(log_wakeup, struct task_struct *task)
{
	note(WAKEUP, 0, task->pid, true);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(log_wakeup_new, struct task_struct *task)
{
	note(WAKEUP, 0, task->pid, true);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
