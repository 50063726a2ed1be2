/* SPDX-License-Identifier: MIT */
/* futex_identity.bpf.h: which lock a thread waits for, and what user space will want to know of it. */
#ifndef __FUTEX_IDENTITY_BPF_H__
#define __FUTEX_IDENTITY_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "backend_state.bpf.h"
#include "call_locks.bpf.h"
#include "futex_state.bpf.h"
#include "java.bpf.h"
#include "maps.bpf.h"
#include "stacks.bpf.h"

/* Waits that ended, for the closing line. */
__u64 futex_events = 0;

struct futex_losses {
	/* Calls that slept without our seeing it, and calls whose return was not seen. */
	__u64 unseen;
	/* Locks that found no room in `futex_locks`: their class is a guess. */
	__u64 undescribed;
	/* No scratch for the stack. */
	__u64 unwalked;
};

struct futex_losses futex_losses = {};

/* What is known of a lock besides its sums. */
struct futex_lock {
	struct lock_evidence evidence;
	/* Interned: process and address; user space looks up what is mapped there. */
	__u64 address_id;
	/* Of the first wait. */
	__u64 user_stack;
};

MAP(HASH, futex_locks, struct lock_id, struct futex_lock, MAX_LOCKS);

/* parking_lot waits on a word of the thread, not of the lock: such waits are told apart by where they come from. */
#define PARKED_VALUE 1

static __always_inline bool is_parked(const struct futex_call *call)
{
	return call->operation == FUTEX_WAIT && call->value == PARKED_VALUE && !(call->flags & FUTEX_IS_SHARED);
}

/* `class` and `confidence` of a futex are its operation and flags until user space has judged. */
static __noinline void identify_futex(struct futex_wait *futex, struct task_struct *task)
{
	struct lock_id *lock = &futex->wait.lock;

	if (futex->event) {
		identify_event(lock, futex->event, futex->server);
		return;
	}
	__builtin_memset(lock, 0, sizeof(*lock));
	lock->address = futex->call.address;
	if (is_call_lock(&futex->call)) {
		lock->object = futex->call.address2;
		lock->side = LOCK_USER;
		lock->class = futex->call.operation;
		return;
	}
	lock->tgid = tgid_of(targets.pid_namespace, task);
	lock->side = LOCK_USER;
	if (futex->java) {
		identify_java(lock, futex);
		return;
	}
	lock->object = is_parked(&futex->call) ? futex->wait.user_stack : 0;
	lock->class = futex->call.operation;
	lock->confidence = futex->call.flags & (FUTEX_IS_SHARED | FUTEX_IS_REALTIME | FUTEX_IS_COMPAT);
}

static __always_inline __u64 intern_address(__u32 slot, struct stack_scratch *scratch, struct task_struct *task,
					     struct lock_id *lock)
{
	struct stack_record *stack = &scratch->record;

	stack->addresses[0] = lock->address;
	stack->depth = 1;
	stack->kind = STACK_ADDRESS;
	stack->end = 0;
	stack->tgid = lock->tgid;
	return intern_stack(slot, (__u64)BPF_CORE_READ(task, mm), true);
}

/* True of what needs no description, or has one of its own. */
static __always_inline bool describe_named(struct futex_wait *futex, struct task_struct *task)
{
	/* User space knows the event. */
	if (futex->event)
		return true;
	if (!is_call_lock(&futex->call))
		return false;
	describe_call_lock(futex, task);
	return true;
}

/* Once per lock, and again when a wait finds what none before it found: a holder. */
static __always_inline void describe_lock(struct futex_wait *futex, struct task_struct *task, __u32 slot,
					   struct stack_scratch *scratch)
{
	struct futex_lock *known = bpf_map_lookup_elem(&futex_locks, &futex->wait.lock), first = {};
	long error;

	if (known) {
		if (futex->evidence.place && !known->evidence.place)
			known->evidence = futex->evidence;
		if (!known->user_stack)
			known->user_stack = futex->wait.user_stack;
		return;
	}
	first.evidence = futex->evidence;
	first.user_stack = futex->wait.user_stack;
	first.address_id = intern_address(slot, scratch, task, &futex->wait.lock);
	error = bpf_map_update_elem(&futex_locks, &futex->wait.lock, &first, BPF_NOEXIST);
	if (error && error != -17 /* EEXIST: two came to a new lock at once */)
		__sync_fetch_and_add(&futex_losses.undescribed, 1);
}

#endif
