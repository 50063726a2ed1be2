/* SPDX-License-Identifier: MIT */
/* futex_state.bpf.h: a thread's wait on a futex, part of the tool's `struct member`. */
#ifndef __FUTEX_STATE_BPF_H__
#define __FUTEX_STATE_BPF_H__

#include "futex_call.bpf.h"
#include "futex_holder.bpf.h"
#include "lock_tables.bpf.h"

enum futex_phase {
	/* Not waiting. */
	FUTEX_IDLE = 0,
	FUTEX_BLOCKED,
	/* Made runnable, or preempted inside the call. */
	FUTEX_RUNNABLE,
	/* Back on a CPU, still inside the call. */
	FUTEX_RUNNING,
};

struct futex_wait {
	struct futex_call call;
	/* Begins when the thread leaves its CPU for the first time in this call; for a PI lock, with the call. */
	struct lock_wait wait;
	struct lock_evidence evidence;
	/* When it was made runnable. */
	__u64 runnable_ns;
	/* When it was moved to `requeued_to`; 0: it was not. */
	__u64 requeued_ns;
	__u64 requeued_to;
	/* Voluntary switches that were seen, by the kernel's count. */
	__u64 switches_seen;
	__u8 phase;
	/* The call was interrupted in a way that restart_syscall(2) takes up again. */
	__u8 restarts;
	__u8 pad[6];
};

#endif
