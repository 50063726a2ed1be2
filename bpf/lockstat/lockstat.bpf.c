/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat: which locks make threads wait, for how long, and who holds them.
 *
 * Kernel locks: kernel_locks.bpf.h; programs' locks: futex.bpf.h; PostgreSQL's: sleeps.bpf.h. Nothing runs for a lock that is free.
 * Switches and wakeups, which tell when a waiter was released and when it ran again, are seen of all threads, and cost a look at what
 * it waits for.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lock_counts.bpf.h"
#include "futex_state.bpf.h"
#include "backend_state.bpf.h"
#include "sleep_state.bpf.h"

enum kernel_lock_class {
	KERNEL_SEMAPHORE = 0,
	KERNEL_SPINLOCK,
	KERNEL_RWLOCK,
	KERNEL_MUTEX,
	KERNEL_RWSEM,
	KERNEL_RTMUTEX,
	KERNEL_PERCPU_RWSEM,
};

/* How deep waits for kernel locks nest: two that sleep (a page fault within another), the lock of the inner one's queue, a
 * softirq's and a hard interrupt's.
 */
#define KERNEL_WAITS 5

struct kernel_waits {
	__u32 depth;
	/* A program is at work on them. */
	__u32 busy;
	/* Begins and ends seen. */
	__u32 events;
	/* Of the wait at work on. */
	__u32 at;
	/* When the thread was made runnable while it slept for the uppermost; 0: it was not. */
	__u64 runnable_ns;
	struct lock_wait waits[KERNEL_WAITS];
};

/* Task storage: what a target waits for. */
struct member {
	struct kernel_waits kernel;
	struct futex_wait futex;
	struct backend backend;
	struct sleep sleep;
	struct pauses pauses;
};

#include "members.bpf.h"
#include "pause_calls.bpf.h"
#include "stacks.bpf.h"
#include "switches.bpf.h"

struct lockstat_config {
	/* Interrupts' waits count, whomever they interrupt: there are no targets. */
	__u32 interrupts;
	/* Holders' kernel stacks are walked. */
	__u32 holder_stacks;
	/* Of whoever releases a lock. Those of the kernel's are recorded only if any are wanted. */
	struct stack_config releasers;
	__u32 futexes;
	__u32 kernel_locks;
};

const volatile struct lockstat_config config = {};

#include "kernel_locks.bpf.h"
#include "kernel_wakeups.bpf.h"
#include "futex.bpf.h"
#include "kernel_sleepers.bpf.h"

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	__u32 event;

	/* It has not begun to wait for anything: an end without a beginning is one that we have missed. */
	if (origin == MEMBER_FORKED)
		member->kernel.events = 1;
	if (!config.futexes)
		return;
	event = backend_found(&member->backend, task);
	member->futex.server = member->backend.server;
	/* Its parent's memory says nothing of a process that has just been made. */
	if (origin != MEMBER_FOUND)
		event = 0;
	futex_found(&member->futex, task, event);
	sleep_found(member, task, event);
}

static __always_inline void member_left(struct member *member, struct task_struct *task)
{
}

/* A target leaves its CPU, and its waits have begun. */
static __always_inline void pause_of_member(struct member *member, struct task_struct *task, bool runnable)
{
	bool is_sleep = member->sleep.phase != FUTEX_IDLE && !is_idle(&member->sleep);
	bool for_others = member->futex.phase != FUTEX_IDLE || member->kernel.depth || is_sleep;
	enum meanwhile what = MEANWHILE_OTHERS;
	__u32 turn = 0;

	if (runnable) {
		what = MEANWHILE_RUN_QUEUE;
	} else if (BPF_CORE_READ_BITFIELD(task, in_iowait)) {
		what = MEANWHILE_DISK;
	} else if (is_in_wait(&member->futex) && member->futex.java == JAVA_SLEEP && !member->kernel.depth) {
		what = MEANWHILE_ASLEEP;
	} else if (for_others) {
		/* The kernel's locks come first: a futex, or a token, may be one that it has. */
		if (!member->kernel.depth)
			turn = is_sleep ? sleep_turn(&member->sleep) : futex_turn(&member->futex);
	} else {
		what = pause_in_call(task);
	}
	pause_begins(&member->pauses, what, turn, bpf_ktime_get_ns());
}

static __always_inline void task_switched(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	struct member *member;
	bool runnable;
	__u32 event;

	if (!prev->pid)
		idle_leaves(prev);
	member = member_of(prev);
	if (member) {
		drop_stale_spins(&member->kernel);
		runnable = stays_runnable(prev, preempt, state);
		kernel_waiter_leaves(&member->kernel, runnable);
		if (config.futexes) {
			close_unended(&member->sleep, prev);
			event = runnable ? 0 : event_of(&member->backend, prev);
			futex_switched_out(&member->futex, prev, runnable, state, event);
			if (!runnable)
				sleep_begins(member, prev, event, state);
			pause_of_member(member, prev, runnable);
		}
	}
	member = member_of(next);
	if (member) {
		kernel_waiter_runs(&member->kernel);
		if (config.futexes) {
			pause_ends(&member->pauses, bpf_ktime_get_ns());
			futex_switched_in(&member->futex, next);
			sleep_ends(&member->sleep, next);
		}
	}
}

ON_SCHED_SWITCH(task_switched(preempt, prev, next, prev_state))

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member)
		return 0;
	kernel_waiter_woken(ctx, &member->kernel);
	if (config.futexes) {
		pause_is_woken(&member->pauses);
		futex_woken(ctx, &member->futex, &config.releasers);
		sleep_is_woken(ctx, member);
	}
	return 0;
}

/* Run once before the window and at the end of each interval. */
SEC("iter/task")
int close_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;

	if (!task)
		return 0;
	member = member_of(task);
	if (!edge_ns) {
		note_run_queue(task);
		if (member)
			find_kernel_waits(member, task);
		return 0;
	}
	if (!member)
		return 0;
	count_open_run_queue(&member->kernel);
	count_open_kernel_waits(&member->kernel, task);
	if (config.futexes) {
		count_open_futex_wait(&member->futex, task, ctx->meta->seq);
		count_open_sleep(member, task, ctx->meta->seq);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
