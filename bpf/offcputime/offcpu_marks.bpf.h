/* SPDX-License-Identifier: MIT */
/* offcpu_marks.bpf.h: calls and returns of functions by which user space is asked to tell pieces of work. They go through the ring
 * of single waits: so a thread's are in order with its waits.
 */
#ifndef __OFFCPU_MARKS_BPF_H__
#define __OFFCPU_MARKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "offcpu_cycles.bpf.h"
#include "registers.h"

/* The thread that is current begins or ends a piece of work. */
struct told_mark {
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	/* Counts its thread's marks; and the number of the last wait before it, as in struct told_wait. */
	__u32 number;
	__u32 waits;
	__u32 is_end;
	/* The end of another call than the one that began the piece, which was left in another way than by its return. */
	__u32 is_other;
	__u64 pad;
};

const struct told_mark *unused_told_mark __attribute__((unused));

/* Calls of one function, which may call itself: the outermost is the piece of work, known by its stack pointer. Calls within it have
 * lower ones. One that is left by an exception is over where there is a call no lower, or the program is another one.
 */
static __always_inline bool is_within(struct member *member, struct task_struct *task, __u64 sp)
{
	__u64 memory = (__u64)BPF_CORE_READ(task, mm);

	if (member->work_sp && member->work_memory == memory && sp < member->work_sp)
		return true;
	member->work_memory = memory;
	return false;
}

static __always_inline void tell_mark(struct pt_regs *regs, bool is_end)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	struct told_mark mark = {};
	__u64 sp = PT_REGS_SP(regs) - (is_end ? RETURN_BYTES : 0);

	if (!member)
		return;
	mark.time_ns = bpf_ktime_get_ns();
	if (config.calls) {
		if (is_within(member, task, sp))
			return;
		mark.is_other = is_end && sp != member->work_sp;
		member->work_sp = is_end ? 0 : sp;
	}
	if (!in_window(mark.time_ns))
		return;
	mark.tgid = tgid_of(targets.pid_namespace, task);
	mark.tid = tid_of(targets.pid_namespace, task);
	bpf_get_current_comm(mark.comm, sizeof(mark.comm));
	mark.is_end = is_end;
	mark.number = ++member->marks;
	/* Last: the thread may lose its CPU on the way. */
	mark.waits = *(volatile __u32 *)&member->waits;
	if (bpf_ringbuf_output(&told_waits, &mark, sizeof(mark), cycle_wakeup()))
		__sync_fetch_and_add(&cycles_full, 1);
}

#endif
