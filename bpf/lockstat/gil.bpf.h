/* SPDX-License-Identifier: MIT */
/* gil.bpf.h: the lock that all threads of an interpreter of Python take turns with, as far as it is more than a futex.
 *
 * A waiter sleeps for 5 ms at a time (sys.setswitchinterval), then asks the holder to give it away and waits again; a holder that
 * gives it away waits until another one has taken it. While somebody else has the lock as a call returns, the wait is not over: it
 * is paused until the next call. What passes between the calls is no part of it.
 */
#ifndef __GIL_BPF_H__
#define __GIL_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "futex_holder.bpf.h"
#include "futex_stacks.bpf.h"
#include "futex_state.bpf.h"
#include "futex_wakeups.bpf.h"
#include "lock_counts.bpf.h"
#include "maps.bpf.h"

/* include/linux/errno.h: restart_syscall(2) takes the call up. */
#define ERESTART_RESTARTBLOCK 516

/* Locks of one process: from 3.12 on, interpreters in it may have their own. */
#define GILS 4
#define MAX_GIL_PROCESSES 4096
/* Places in the lock, in every version: the state of the thread that has it or had it last, and whether it has it. */
#define GIL_HOLDER 8
#define GIL_LOCKED 16

struct gils {
	/* mm->start_stack: tells an address space from the one before exec. */
	__u64 space;
	/* 0: no more. */
	__u64 at[GILS];
	/* Bytes of one. */
	__u32 size;
	/* From a thread's state to its number in the innermost PID namespace; 0: it has none. */
	__u32 tid_at;
};

/* process → its locks, from user space */
MAP(LRU_HASH, gils, __u32, struct gils, MAX_GIL_PROCESSES);

/* User space has told of any. */
__u32 has_gils = 0;

/* Address of the lock that a call waits for; 0: it is another one. */
static __noinline __u64 gil_of(struct task_struct *task, const struct futex_call *call, __u32 *tid_at)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);
	const struct gils *known;

	*tid_at = 0;
	if (!has_gils || call->flags & (FUTEX_IS_SHARED | FUTEX_IS_COMPAT))
		return 0;
	known = bpf_map_lookup_elem(&gils, &tgid);
	if (!known || known->space != BPF_CORE_READ(task, mm, start_stack))
		return 0;
	for (int i = 0; i < GILS; i++) {
		__u64 at = known->at[i];

		if (at && call->address - at < known->size) {
			*tid_at = known->tid_at;
			return at;
		}
	}
	return 0;
}

static __always_inline void note_gil(struct futex_wait *futex, struct task_struct *task)
{
	__u32 tid_at;

	futex->gil = gil_of(task, &futex->call, &tid_at);
	futex->gil_tid_at = tid_at;
}

/* Somebody has the lock: not the thread that is current, which is about to try. */
static __always_inline bool gil_is_taken(const struct futex_wait *futex)
{
	__u32 locked = 0;

	return !bpf_probe_read_user(&locked, sizeof(locked), (void *)(futex->gil + GIL_LOCKED)) && locked == 1;
}

/* The thread that has it as the waiter, which is current, leaves its CPU. That one was just woken, perhaps: what it does now says
 * nothing of what it does with the lock.
 */
static __noinline void find_gil_holder(struct futex_wait *futex, struct task_struct *waiter)
{
	struct lock_holder *holder = &futex->wait.holder;
	__u64 state = 0, tid = 0;

	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	__builtin_memset(holder, 0, sizeof(*holder));
	futex->evidence.value = futex->call.value;
	if (!futex->gil_tid_at || !gil_is_taken(futex))
		return;
	if (bpf_probe_read_user(&state, sizeof(state), (void *)(futex->gil + GIL_HOLDER)) || !state)
		return;
	if (bpf_probe_read_user(&tid, sizeof(tid), (void *)(state + futex->gil_tid_at)) || tid > FUTEX_TID_MASK)
		return;
	if (!accept_holder(&futex->call, waiter, tid, HOLDER_IN_WORD, holder))
		return;
	holder->state = HOLDER_STATES;
	if (holder->pid == (__u32)waiter->pid)
		holder->kind = HOLDER_UNKNOWN;
}

/* The next call waits for the same lock. */
static __always_inline void resume_gil_wait(struct futex_wait *futex, __u64 now)
{
	__u64 gap_ns = now - futex->paused_ns;

	futex->wait.begin_ns += gap_ns;
	if (futex->wait.reported_ns)
		futex->wait.reported_ns += gap_ns;
	futex->wait.part_ns = now;
	futex->phase = FUTEX_BLOCKED;
}

/* A paused wait is over: the next call did not come. */
static __noinline void end_paused(struct futex_wait *futex, struct task_struct *task)
{
	/* From here on an edge is looked after here, and the iterator leaves it alone. */
	futex->phase = FUTEX_IDLE;
	futex->wait.is_given_up = 0;
	drop_unsure_holder(futex);
	count_ended_wait(&futex->wait, task, futex->paused_ns);
	__sync_fetch_and_add(&futex_events, 1);
}

/* A call returns, and somebody else has Python's global lock. */
static __noinline void pause_gil_wait(struct futex_wait *futex, struct task_struct *task, long ret, __u64 now)
{
	end_part(&futex->wait, now);
	if (futex->wait.user_stack)
		identify_futex(futex, task);
	else
		walk_futex_waiter(futex, task);
	futex->restarts = ret == -ERESTART_RESTARTBLOCK;
	futex->paused_ns = now;
	futex->phase = FUTEX_PAUSED;
}

/* The thread, which has paused, sleeps; `is_wait`: on the futex of futex->call. True if its wait goes on. */
static __noinline bool goes_on(struct futex_wait *futex, struct task_struct *task, bool is_wait)
{
	__u32 tid_at;

	if (is_wait && gil_of(task, &futex->call, &tid_at) == futex->gil) {
		resume_gil_wait(futex, bpf_ktime_get_ns());
		return true;
	}
	end_paused(futex, task);
	return false;
}

#endif
