/* SPDX-License-Identifier: MIT */
/* lock_windows.bpf.h: waits that outlast the windows that a collection with a budget is cut into.
 *
 * Before a window every thread is asked what it sleeps for, after it what it still waits for. A thread that has not switched
 * since the window before sleeps in the wait that it slept in then, which goes on with its beginning known. A wait is counted in
 * the window that sees its end; its time in each that it spans.
 */
#ifndef __LOCK_WINDOWS_BPF_H__
#define __LOCK_WINDOWS_BPF_H__

#include "futex_open.bpf.h"
#include "kernel_locks.bpf.h"
#include "kernel_owner.bpf.h"
#include "kernel_wakeups.bpf.h"

/* Of enum kernel_lock_kind; KERNEL_SEMAPHORE for what is none. */
static __always_inline enum kernel_lock_class class_of_kind(__u32 kind)
{
	switch (kind) {
	case KERNEL_LOCK_MUTEX:
		return KERNEL_MUTEX;
	case KERNEL_LOCK_RWSEM_READ:
	case KERNEL_LOCK_RWSEM_WRITE:
		return KERNEL_RWSEM;
	case KERNEL_LOCK_RT_MUTEX:
		return KERNEL_RTMUTEX;
	default:
		return KERNEL_SEMAPHORE;
	}
}

/* Its user stack is walked when the wait ends, if we see that. */
static __always_inline void walk_sleeper(struct lock_wait *wait, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;
	long bytes;

	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&kernel_lock_losses.unwalked, 1);
		return;
	}
	bytes = bpf_get_task_stack(task, scratch->record.addresses, sizeof(scratch->record.addresses), 0);
	wait->kernel_stack = intern_kernel_stack(slot, scratch, bytes);
	release_scratch(scratch);
}

/* A futex with priority inheritance is a real-time mutex below, for which no contention is reported. */
static __always_inline bool is_in_pi_futex(struct task_struct *task)
{
	struct futex_call call;

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return false;
	futex_call_of(task, false, &call);
	return is_pi_wait(&call) || call.operation == FUTEX_WAIT_REQUEUE_PI;
}

/* What a thread sleeps for that began to do so before tracing did, or between two windows. */
static __always_inline void find_kernel_wait(struct kernel_waits *waits, struct task_struct *task, __u64 now)
{
	struct kernel_lock lock = {};
	struct lock_wait *wait = &waits->waits[0];

	kernel_lock_of(&lock, task, task_state(task));
	if (!lock.kind || (lock.kind == KERNEL_LOCK_RT_MUTEX && is_in_pi_futex(task)))
		return;
	__builtin_memset(wait, 0, sizeof(*wait));
	wait->lock.address = lock.address;
	wait->lock.class = class_of_kind(lock.kind);
	wait->lock.confidence = 100;
	wait->begin_ns = wait->part_ns = now;
	wait->mode = lock.kind == KERNEL_LOCK_RWSEM_READ ? WAIT_SHARED : WAIT_EXCLUSIVE;
	if (lock.is_mmap_lock)
		wait->lock.tgid = tgid_of(targets.pid_namespace, task);
	note_kernel_holder(wait, lock.address);
	walk_sleeper(wait, task);
	waits->depth = 1;
}

/* `is_same`: the thread has not switched since we saw it last. `may_sleep`: it is not on a CPU, nor queued for one. */
static __always_inline void reopen_kernel_waits(struct kernel_waits *waits, struct task_struct *task, bool is_same,
						bool may_sleep, __u64 now)
{
	waits->runnable_ns = 0;
	if (waits->depth && (!is_same || !sleeping_wait(waits)))
		waits->depth = 0;
	if (may_sleep && !waits->depth)
		find_kernel_wait(waits, task, now);
	else if (waits->depth && !may_sleep)
		waits->runnable_ns = now;
}

/* As find_holder, but the lock's word cannot be read here. */
static __always_inline void find_futex_wait(struct futex_wait *futex, struct task_struct *task, bool may_sleep, __u64 now)
{
	futex->phase = FUTEX_IDLE;
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD || !waits_on_futex(futex, task, false))
		return;
	begin_futex_wait(futex, now);
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	futex->evidence.value = futex->call.value;
	identify_futex(futex, task);
	describe_here(futex, task);
}

static __always_inline void reopen_futex(struct futex_wait *futex, struct task_struct *task, bool is_same, bool may_sleep,
					 __u64 now, struct seq_file *seq)
{
	bool is_known = is_same && futex->phase != FUTEX_IDLE;

	if (!is_known)
		find_futex_wait(futex, task, may_sleep, now);
	if (futex->phase == FUTEX_IDLE)
		return;
	if (!may_sleep && futex->phase == FUTEX_BLOCKED) {
		/* Woken between two windows, by whom nobody saw. */
		futex->phase = FUTEX_RUNNABLE;
		futex->runnable_ns = futex->wait.released_ns = now;
	}
	if (!is_known)
		hand_over_registers(futex, task, seq);
}

static __always_inline void open_in_window(struct member *member, struct task_struct *task, struct seq_file *seq)
{
	__u64 now = bpf_ktime_get_ns(), switches = switches_of(task);
	bool is_same = member->switches == switches, may_sleep;

	if (is_on_cpu(task)) {
		/* A program may be at work on it this moment: nothing is written that need not be. */
		if (!is_same && member->kernel.depth && !member->kernel.busy)
			member->kernel.depth = 0;
		if (member->futex.phase != FUTEX_IDLE)
			member->futex.phase = FUTEX_IDLE;
		return;
	}
	may_sleep = !is_queued(task);
	if (config.kernel_locks)
		reopen_kernel_waits(&member->kernel, task, is_same, may_sleep, now);
	if (config.futexes)
		reopen_futex(&member->futex, task, is_same, may_sleep, now, seq);
	member->switches = switches;
	/* It ran meanwhile: none of this is so any more. */
	if (is_on_cpu(task) || switches_of(task) != switches) {
		member->kernel.depth = 0;
		member->futex.phase = FUTEX_IDLE;
	}
}

/* Run before the window, where there is one. */
static __always_inline void find_kernel_waits(struct member *member, struct task_struct *task)
{
	struct kernel_waits *waits = &member->kernel;
	__u64 switches = switches_of(task);

	if (!config.kernel_locks || in_windows || waits->depth || is_on_cpu(task) || is_queued(task))
		return;
	find_kernel_wait(waits, task, bpf_ktime_get_ns());
	/* It ran meanwhile, and its own programs may have been at work. */
	if (is_on_cpu(task) || switches_of(task) != switches)
		waits->depth = 0;
}

/* Its time up to the window's end; its number is that of its end. */
static __always_inline void count_in_window(struct lock_wait *wait, struct task_struct *task)
{
	wait->is_counted = 1;
	count_open_wait(wait, task);
	wait->is_counted = 0;
}

static __noinline void count_kernel_wait_in_window(struct lock_wait *wait, struct task_struct *task)
{
	name_lock(wait, task);
	count_in_window(wait, task);
}

static __always_inline void close_in_window(struct member *member, struct task_struct *task)
{
	struct kernel_waits *waits = &member->kernel;
	struct futex_wait *futex = &member->futex;

	count_open_run_queue(waits);
	/* As in count_open_kernel_waits. */
#pragma unroll
	for (__u32 i = 0; i < KERNEL_WAITS; i++)
		if (i < waits->depth)
			count_kernel_wait_in_window(&waits->waits[i], task);
	if (!config.futexes || futex->phase == FUTEX_IDLE || futex->wait.begin_ns >= edge_ns)
		return;
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, edge_ns);
	drop_unsure_holder(futex);
	count_in_window(&futex->wait, task);
}

#endif
