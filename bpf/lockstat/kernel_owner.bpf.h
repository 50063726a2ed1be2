/* SPDX-License-Identifier: MIT */
/* kernel_owner.bpf.h: the kernel lock that a task waits for at this instant, and whom the lock names as its owner. */
#ifndef __KERNEL_OWNER_BPF_H__
#define __KERNEL_OWNER_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "waits.bpf.h"

enum kernel_lock_kind {
	KERNEL_LOCK_NONE = 0,
	KERNEL_LOCK_MUTEX,
	KERNEL_LOCK_RWSEM_READ,
	KERNEL_LOCK_RWSEM_WRITE,
	KERNEL_LOCK_SEMAPHORE,
	KERNEL_LOCK_RT_MUTEX,
};

/* What a lock says of itself. */
struct kernel_lock {
	__u64 address;
	/* The owner's task_struct; the low bits are the lock's flags. */
	__u64 owner;
	/* rwsem: bit 0 is set while a writer has it, bits 8 and up count readers. */
	__u64 count;
	__u32 kind;
	/* It is the mmap_lock of the waiter's own address space. */
	__u32 is_mmap_lock;
};

/* kernel/locking/rwsem.c */
enum rwsem_waiter_type {
	RWSEM_WAITING_FOR_WRITE,
	RWSEM_WAITING_FOR_READ,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct mutex___owned {
	struct {
		s64 counter;
	} owner;
};
struct rw_semaphore___owned {
	struct {
		s64 counter;
	} count, owner;
	struct list_head wait_list;
};
/* Since 7.2 the waiters are a ring, without a head in the lock. */
struct rw_semaphore___ring {
	struct rwsem_waiter___listed *first_waiter;
};
struct semaphore___owned {
	/* 194a9b9e843b (6.16), with CONFIG_DETECT_HUNG_TASK_BLOCKER. */
	unsigned long last_holder;
};
struct rt_mutex_base___owned {
	struct task_struct *owner;
};
struct rt_mutex_waiter___lock {
	struct rt_mutex_base___owned *lock;
};
struct rwsem_waiter___listed {
	struct list_head list;
	struct task_struct *task;
	enum rwsem_waiter_type type;
};
struct mm_struct___locked {
	struct rw_semaphore___owned mmap_lock;
};
#pragma clang attribute pop

/* e711faaafbe5 (6.16): the low two bits of `blocker`. */
#define BLOCKER_KINDS 3
/* Waiters of one mmap_lock that are looked at. */
#define MAX_LISTED_WAITERS 256

static __always_inline void describe_mutex(struct kernel_lock *lock, __u64 address)
{
	struct mutex___owned *mutex = (void *)address;

	lock->kind = KERNEL_LOCK_MUTEX;
	lock->address = address;
	lock->owner = BPF_CORE_READ(mutex, owner.counter);
}

static __always_inline void describe_rwsem(struct kernel_lock *lock, __u64 address, __u32 kind)
{
	struct rw_semaphore___owned *sem = (void *)address;

	lock->kind = kind;
	lock->address = address;
	lock->owner = BPF_CORE_READ(sem, owner.counter);
	lock->count = BPF_CORE_READ(sem, count.counter);
}

static __always_inline void describe_semaphore(struct kernel_lock *lock, __u64 address)
{
	struct semaphore___owned *semaphore = (void *)address;

	lock->kind = KERNEL_LOCK_SEMAPHORE;
	lock->address = address;
	if (bpf_core_field_exists(semaphore->last_holder))
		lock->owner = BPF_CORE_READ(semaphore, last_holder);
}

static __always_inline void describe_rt_mutex(struct kernel_lock *lock, struct task_struct *task)
{
	struct rt_mutex_waiter___lock *waiter = (void *)BPF_CORE_READ(task, pi_blocked_on);
	struct rt_mutex_base___owned *mutex = NULL;

	if (!bpf_core_type_exists(struct rt_mutex_base___owned))
		return;
	mutex = BPF_CORE_READ(waiter, lock);
	lock->kind = KERNEL_LOCK_RT_MUTEX;
	lock->address = (__u64)mutex;
	lock->owner = (__u64)BPF_CORE_READ(mutex, owner);
}

/* The first of a lock's waiters, and `end`: what follows the last of them. */
static __always_inline struct list_head *waiters_of(struct rw_semaphore___owned *sem, struct list_head **end)
{
	struct rw_semaphore___ring *ring = (void *)sem;
	struct rwsem_waiter___listed *first;

	if (bpf_core_field_exists(sem->wait_list)) {
		struct list_head *at = BPF_CORE_READ(sem, wait_list.next);

		*end = &sem->wait_list;
		return at == *end ? NULL : at;
	}
	if (!bpf_core_field_exists(ring->first_waiter))
		return NULL;
	first = BPF_CORE_READ(ring, first_waiter);
	*end = &first->list;
	return first ? *end : NULL;
}

/* Killable waits, as all for mmap_lock are, are not recorded in `blocker`: the lock's own list of waiters tells. */
static __always_inline void find_in_mmap_lock(struct kernel_lock *lock, struct task_struct *task)
{
	struct mm_struct___locked *mm = (void *)BPF_CORE_READ(task, mm);
	struct rw_semaphore___owned *sem = &mm->mmap_lock;
	struct rwsem_waiter___listed *waiter = NULL;
	struct list_head *end, *at;

	if (!mm || !bpf_core_field_exists(waiter->task) || !bpf_core_field_exists(waiter->list))
		return;
	at = waiters_of(sem, &end);
	for (int i = 0; i < MAX_LISTED_WAITERS && at; i++) {
		waiter = (void *)at - bpf_core_field_offset(waiter->list);
		if (BPF_CORE_READ(waiter, task) == task) {
			describe_rwsem(lock, (__u64)sem,
				       BPF_CORE_READ(waiter, type) == RWSEM_WAITING_FOR_READ ?
					       KERNEL_LOCK_RWSEM_READ :
					       KERNEL_LOCK_RWSEM_WRITE);
			lock->is_mmap_lock = 1;
			return;
		}
		at = BPF_CORE_READ(at, next);
		if (at == end)
			return;
	}
}

static __always_inline void describe_blocker(struct kernel_lock *lock, struct task_struct *task, __u64 blocker)
{
	struct mm_struct___locked *mm = (void *)BPF_CORE_READ(task, mm);
	__u64 address = blocker & ~(__u64)BLOCKER_KINDS;

	switch (blocker & BLOCKER_KINDS) {
	case 0:
		describe_mutex(lock, address);
		break;
	case 1:
		describe_semaphore(lock, address);
		break;
	case 2:
		describe_rwsem(lock, address, KERNEL_LOCK_RWSEM_READ);
		break;
	default:
		describe_rwsem(lock, address, KERNEL_LOCK_RWSEM_WRITE);
	}
	lock->is_mmap_lock = mm && address == (__u64)&mm->mmap_lock;
}

/* Of a task that is asleep. The fields are the sleeper's own: they stay as they are until it runs. */
static __always_inline void kernel_lock_of(struct kernel_lock *lock, struct task_struct *task, __u32 state)
{
	if (bpf_core_field_exists(task->blocked_on) && BPF_CORE_READ(task, blocked_on))
		describe_mutex(lock, (__u64)BPF_CORE_READ(task, blocked_on));
	else if (bpf_core_field_exists(task->blocker) && BPF_CORE_READ(task, blocker))
		describe_blocker(lock, task, BPF_CORE_READ(task, blocker));
	else if (BPF_CORE_READ(task, pi_blocked_on))
		describe_rt_mutex(lock, task);
	else if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		find_in_mmap_lock(lock, task);
}

#endif
