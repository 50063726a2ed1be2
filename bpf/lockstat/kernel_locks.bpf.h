/* SPDX-License-Identifier: MIT */
/* kernel_locks.bpf.h: waits for the kernel's locks, from contention_begin to contention_end (16edd9b511a1, 5.19).
 *
 * Waits nest: whoever queues for a mutex may spin for the lock of its queue, and be interrupted by a handler that spins for
 * a third. They end in the opposite order, so each task has a small stack of them; interrupts put theirs on the stack
 * of the task that they interrupt, which stays current meanwhile. An end is matched by the lock's address.
 *
 * A mutex begins up to once per part (dc1f7893a70f, 6.0): SPIN|MUTEX while it spins for the owner to leave, MUTEX when it
 * sleeps, perhaps SPIN|MUTEX again; one end.
 *
 * Stacks are walked when a wait begins to block: walking is then part of the waiting. Who only spins is walked at the end,
 * where the length is known, and mostly not at all: a walk takes longer than an ordinary wait for a spinlock, before which
 * it would be counted as waiting, and after which it is done with the lock held.
 */
#ifndef __KERNEL_LOCKS_BPF_H__
#define __KERNEL_LOCKS_BPF_H__

#include <bpf/bpf_tracing.h>
#include "kernel_owner.bpf.h"
#include "lock_counts.bpf.h"
#include "lock_holders.bpf.h"
#include "lock_names.bpf.h"
#include "maps.bpf.h"

/* include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

/* Shorter waits that only spun are walked one time in SPIN_SAMPLE. */
#define SPIN_WALK_NS 10000
#define SPIN_SAMPLE 16

struct kernel_lock_losses {
	/* Ends of waits whose beginning was not seen, not counting those that were under way when tracing began. */
	__u64 unbegun;
	/* Beginnings of waits whose end was not seen. */
	__u64 unended;
	/* Waits in the middle of our own work on another. */
	__u64 nested;
	/* No scratch for the stack. */
	__u64 unwalked;
};

struct kernel_lock_losses kernel_lock_losses = {};
/* Waits that had begun before tracing did, and ended inside the window: their length is not known. */
__u64 begun_before = 0;

/* Idle tasks have no storage, but are interrupted: one per CPU. */
PER_CPU(idle_waits, struct kernel_waits);

/* Begins and ends, for the closing line. */
PER_CPU(lock_events, __u64);

static __always_inline enum kernel_lock_class class_of(__u32 flags)
{
	if (flags & LCB_F_MUTEX)
		return KERNEL_MUTEX;
	if (flags & LCB_F_RT)
		return KERNEL_RTMUTEX;
	if (flags & LCB_F_PERCPU)
		return KERNEL_PERCPU_RWSEM;
	if (flags & LCB_F_SPIN)
		return flags & (LCB_F_READ | LCB_F_WRITE) ? KERNEL_RWLOCK : KERNEL_SPINLOCK;
	if (flags & (LCB_F_READ | LCB_F_WRITE))
		return KERNEL_RWSEM;
	return KERNEL_SEMAPHORE;
}

static __always_inline struct kernel_waits *waits_of(struct task_struct *task)
{
	struct member *member;
	__u32 zero = 0;

	if (task->pid == 0)
		return config.interrupts ? bpf_map_lookup_elem(&idle_waits, &zero) : NULL;
	member = member_of(task);
	return member ? &member->kernel : NULL;
}

static __always_inline void count_event(void)
{
	__u32 zero = 0;
	__u64 *events = bpf_map_lookup_elem(&lock_events, &zero);

	if (events)
		(*events)++;
}

/* Both stacks, in the waiter's context. */
static __always_inline void walk_waiter(void *ctx, struct lock_wait *wait, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	if (wait->is_walked)
		return;
	wait->is_walked = 1;
	/* The first one names the lock. */
	if (is_lock_named(&wait->lock) && leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&kernel_lock_losses.unwalked, 1);
		return;
	}
	wait->kernel_stack = kernel_stack(ctx, slot, scratch);
	if (task->pid)
		wait->user_stack = user_stack(slot, scratch, task, tgid_of(targets.pid_namespace, task));
	release_scratch(scratch);
}

/* Real-time mutexes name their owner, semaphores who came last, if the kernel looks for hung tasks. */
static __always_inline void note_other_owner(struct lock_wait *wait, __u64 lock, bool with_stack)
{
	struct rt_mutex_base___owned *mutex = (void *)lock;
	struct kernel_lock semaphore = {};
	__u64 owner = 0;

	if (wait->lock.class == KERNEL_RTMUTEX && bpf_core_type_exists(struct rt_mutex_base___owned)) {
		owner = (__u64)BPF_CORE_READ(mutex, owner);
	} else if (wait->lock.class == KERNEL_SEMAPHORE) {
		describe_semaphore(&semaphore, lock);
		owner = semaphore.owner;
	}
	owner &= ~OWNER_FLAGS;
	if (owner)
		note_holder(&wait->holder, (struct task_struct *)owner, HOLDER_OWNER, with_stack);
}

static __always_inline void note_kernel_holder(struct lock_wait *wait, __u64 lock)
{
	bool with_stack = config.holder_stacks && !wait->is_spinning;

	if (wait->lock.class == KERNEL_MUTEX)
		note_mutex_owner(&wait->holder, (struct mutex *)lock, with_stack);
	else if (wait->lock.class == KERNEL_RWSEM)
		note_rwsem_owner(&wait->holder, (struct rw_semaphore *)lock, with_stack);
	else
		note_other_owner(wait, lock, with_stack);
}

static __always_inline void begin_wait(struct lock_wait *wait, struct task_struct *task, __u64 lock, __u32 flags,
				       __u64 now)
{
	__builtin_memset(wait, 0, sizeof(*wait));
	wait->lock.address = lock;
	wait->lock.class = class_of(flags);
	wait->lock.confidence = 100;
	wait->part_ns = now;
	wait->mode = flags & LCB_F_READ ? WAIT_SHARED : WAIT_EXCLUSIVE;
	if (wait->lock.class == KERNEL_RWSEM && is_own_mmap_lock(task, lock))
		wait->lock.tgid = tgid_of(targets.pid_namespace, task);
	/* The iterator may come by on another CPU: a wait without beginning is none. */
	barrier();
	*(volatile __u64 *)&wait->begin_ns = now;
}

static __always_inline bool is_spin_class(enum kernel_lock_class class)
{
	return class == KERNEL_SPINLOCK || class == KERNEL_RWLOCK;
}

/* Nobody sleeps with a spinlock in view, nor asks for a lock that one may sleep for: entries of such waits have missed their end.
 * It is missed where an interrupt spins just before or after our own program for another end: the kernel keeps that end from us.
 */
static __always_inline void drop_stale_spins(struct kernel_waits *waits)
{
	for (int i = 0; i < KERNEL_WAITS; i++) {
		__u32 top = waits->depth - 1;

		if (top >= KERNEL_WAITS || !is_spin_class(waits->waits[top].lock.class))
			return;
		waits->depth = top;
		__sync_fetch_and_add(&kernel_lock_losses.unended, 1);
	}
}

/* What interrupts have left with the idle task. */
static __always_inline void idle_leaves(struct task_struct *idle)
{
	struct kernel_waits *waits = waits_of(idle);

	if (waits)
		drop_stale_spins(waits);
}

/* Where the wait for `lock` is, counted from the bottom; KERNEL_WAITS if nowhere. */
static __always_inline __u32 find_wait(struct kernel_waits *waits, __u64 lock)
{
	waits->at = KERNEL_WAITS;
	for (__u32 i = 0; i < KERNEL_WAITS; i++)
		if (i < waits->depth && waits->waits[i].lock.address == lock)
			waits->at = i;
	/* Through memory: else the verifier follows each place to the end by itself. */
	barrier();
	return waits->at;
}

static __always_inline struct lock_wait *push_wait(struct kernel_waits *waits, __u32 flags)
{
	__u32 depth;

	if (!is_spin_class(class_of(flags)))
		drop_stale_spins(waits);
	depth = waits->depth;
	if (depth >= KERNEL_WAITS) {
		/* Deeper than waits nest: what lies there is stale. */
		__sync_fetch_and_add(&kernel_lock_losses.unended, KERNEL_WAITS);
		depth = 0;
	}
	*(volatile __u64 *)&waits->waits[depth].begin_ns = 0;
	barrier();
	waits->depth = depth + 1;
	return &waits->waits[depth];
}

static __always_inline void lock_begins(void *ctx, struct kernel_waits *waits, struct task_struct *task, __u64 lock,
					__u32 flags)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 at = find_wait(waits, lock);
	struct lock_wait *wait;

	/* What was under way at the window's end is counted as it was then. */
	if (is_late(now))
		return;
	waits->events++;
	if (at < KERNEL_WAITS && !(flags & LCB_F_MUTEX)) {
		/* It cannot wait twice. */
		__sync_fetch_and_add(&kernel_lock_losses.unended, waits->depth - at);
		waits->depth = at;
		at = KERNEL_WAITS;
	}
	if (at < KERNEL_WAITS) {
		/* The same wait goes on, sleeping instead of spinning or the other way round. */
		__sync_fetch_and_add(&kernel_lock_losses.unended, waits->depth - at - 1);
		wait = &waits->waits[at];
		/* Out of the iterator's sight meanwhile. */
		waits->depth = at;
		barrier();
		pass_edge(wait, task, now);
		barrier();
		waits->depth = at + 1;
		end_part(wait, now);
	} else {
		wait = push_wait(waits, flags);
		begin_wait(wait, task, lock, flags, now);
		waits->runnable_ns = 0;
	}
	wait->is_spinning = !!(flags & LCB_F_SPIN);
	note_kernel_holder(wait, lock);
	if (!wait->is_spinning)
		walk_waiter(ctx, wait, task);
}

/* Worth a walk: long, or the lock has no name yet, or its turn. */
static __always_inline bool deserves_walk(struct lock_wait *wait, __u64 now)
{
	return now - wait->begin_ns >= SPIN_WALK_NS || !is_lock_named(&wait->lock) ||
	       bpf_get_prandom_u32() % SPIN_SAMPLE == 0;
}

static __always_inline void lock_ends(void *ctx, struct kernel_waits *waits, struct task_struct *task, __u64 lock,
				      int ret)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 at = find_wait(waits, lock);
	struct lock_wait *wait;

	if (at >= KERNEL_WAITS) {
		if (in_window(now))
			__sync_fetch_and_add(waits->events++ ? &kernel_lock_losses.unbegun : &begun_before, 1);
		return;
	}
	if (waits->depth > at + 1)
		__sync_fetch_and_add(&kernel_lock_losses.unended, waits->depth - at - 1);
	waits->depth = at;
	wait = &waits->waits[at];
	if (!in_window(now) && !window_end_ns)
		return;
	wait->is_given_up = ret != 0;
	if (ret) {
		wait->waker = 0;
		forget_waker(&wait->holder);
	}
	if (deserves_walk(wait, now))
		walk_waiter(ctx, wait, task);
	name_lock(wait, task);
	count_ended_wait(wait, task, now);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = current_task();
	struct kernel_waits *waits = waits_of(task);

	if (!waits)
		return 0;
	/* What an interrupt, or our own maps' locks, wait for while we are at work on this task. */
	if (waits->busy) {
		__sync_fetch_and_add(&kernel_lock_losses.nested, 1);
		return 0;
	}
	waits->busy = 1;
	barrier();
	count_event();
	lock_begins(ctx, waits, task, (__u64)lock, flags);
	barrier();
	waits->busy = 0;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	struct task_struct *task = current_task();
	struct kernel_waits *waits = waits_of(task);

	if (!waits || waits->busy)
		return 0;
	waits->busy = 1;
	barrier();
	lock_ends(ctx, waits, task, (__u64)lock, ret);
	barrier();
	waits->busy = 0;
	return 0;
}

static __noinline void count_open_kernel_wait(struct lock_wait *wait, struct task_struct *task)
{
	name_lock(wait, task);
	count_open_wait(wait, task);
}

static __always_inline void count_open_kernel_waits(struct kernel_waits *waits, struct task_struct *task)
{
	/* Clang may lay out a loop so that its end falls through to its head, which verifiers up to 6.12 at least refuse. */
#pragma unroll
	for (__u32 i = 0; i < KERNEL_WAITS; i++)
		if (i < waits->depth)
			count_open_kernel_wait(&waits->waits[i], task);
}

#endif
