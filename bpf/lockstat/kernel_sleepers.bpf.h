/* SPDX-License-Identifier: MIT */
/* kernel_sleepers.bpf.h: waits for kernel locks that began before tracing did. */
#ifndef __KERNEL_SLEEPERS_BPF_H__
#define __KERNEL_SLEEPERS_BPF_H__

#include "futex.bpf.h"
#include "kernel_locks.bpf.h"
#include "kernel_owner.bpf.h"
#include "kernel_wakeups.bpf.h"

/* The class of an enum kernel_lock_kind; KERNEL_SEMAPHORE for what is none. */
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

/* Looks up the lock that a thread sleeps for. */
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

/* Run before the window. */
static __always_inline void find_kernel_waits(struct member *member, struct task_struct *task)
{
	struct kernel_waits *waits = &member->kernel;
	__u64 switches = switches_of(task);

	if (!config.kernel_locks || waits->depth || is_on_cpu(task) || is_queued(task))
		return;
	find_kernel_wait(waits, task, bpf_ktime_get_ns());
	/* It ran meanwhile, and its own programs may have been at work. */
	if (is_on_cpu(task) || switches_of(task) != switches)
		waits->depth = 0;
}

#endif
