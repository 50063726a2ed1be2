/* SPDX-License-Identifier: MIT */
/* offcpu_marks.bpf.h: calls and returns of functions by which user space is asked to tell pieces of work. They go through the ring
 * of single waits: so a thread's are in order with its waits.
 */
#ifndef __OFFCPU_MARKS_BPF_H__
#define __OFFCPU_MARKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "offcpu_cycles.bpf.h"

/* The thread that is current begins or ends a piece of work. */
struct told_mark {
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	/* The stack pointer: a function that it calls has a lower one. */
	__u64 sp;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	/* Counts its thread's marks; and the number of the last wait before it, as in struct told_wait. */
	__u32 number;
	__u32 waits;
	__u32 is_end;
	__u32 pad;
};

const struct told_mark *unused_told_mark __attribute__((unused));

static __always_inline void tell_mark(struct pt_regs *regs, bool is_end)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	__u64 now = bpf_ktime_get_ns();
	struct told_mark *mark;

	if (!member || !in_window(now))
		return;
	member->marks++;
	mark = bpf_ringbuf_reserve(&told_waits, sizeof(*mark), 0);
	if (!mark) {
		__sync_fetch_and_add(&cycles_full, 1);
		return;
	}
	mark->time_ns = now;
	mark->sp = PT_REGS_SP(regs);
	mark->tgid = tgid_of(targets.pid_namespace, task);
	mark->tid = tid_of(targets.pid_namespace, task);
	bpf_get_current_comm(mark->comm, sizeof(mark->comm));
	mark->number = member->marks;
	mark->waits = member->waits;
	mark->is_end = is_end;
	mark->pad = 0;
	bpf_ringbuf_submit(mark, cycle_wakeup());
}

#endif
