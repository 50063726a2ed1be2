/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* locks.bpf.h: who waits for which of the kernel's locks. */
#ifndef __LOCKS_BPF_H__
#define __LOCKS_BPF_H__

#include "log.bpf.h"
#include <bpf/bpf_tracing.h>

enum {
	/* `thread`, or an interrupt upon it, begins to wait for the lock `object`; `detail`: LCB_F_… of include/trace/events/lock.h. */
	CONTENTION = 5,
	/* It ends to, with `detail`. */
	CONTENDED = 6,
};

static __always_inline void note_lock(__u32 kind, void *lock, __u64 detail)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct event event = {
		.kind = kind,
		.thread = task->pid,
		.object = (__u64)lock,
		.detail = detail,
	};

	if (is_meant(task))
		note(&event);
}

SEC("?tp_btf/contention_begin")
int BPF_PROG(log_contention, void *lock, unsigned int flags)
{
	note_lock(CONTENTION, lock, flags);
	return 0;
}

SEC("?tp_btf/contention_end")
int BPF_PROG(log_contended, void *lock, int ret)
{
	note_lock(CONTENDED, lock, ret);
	return 0;
}

#endif
