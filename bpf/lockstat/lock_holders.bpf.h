/* SPDX-License-Identifier: MIT */
/* lock_holders.bpf.h: who has a lock while others wait for it, and what they are doing. */
#ifndef __LOCK_HOLDERS_BPF_H__
#define __LOCK_HOLDERS_BPF_H__

#include "lock_counts.bpf.h"
#include "stacks.bpf.h"

/* kfuncs: bpf_task_from_pid is of 6.2. */
struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *task) __ksym __weak;

/* Owner words of mutexes and rwsems are a task with flags in the low bits. */
#define OWNER_FLAGS 7ULL
/* include/linux/rwsem.h: readers have it; the task is the last that came. */
#define RWSEM_READER_OWNED 1ULL

/* The kernel stack of a task that is not on a CPU, by its ID in the initial namespace. */
static __always_inline __u64 stack_of_other(pid_t pid)
{
	struct stack_scratch *scratch;
	struct task_struct *task;
	__u64 id = 0;
	__u32 slot;
	long bytes;

	if (!bpf_ksym_exists(bpf_task_from_pid) || leaves_out_stack())
		return 0;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&lock_losses.holders_unwalked, 1);
		return 0;
	}
	task = bpf_task_from_pid(pid);
	if (task) {
		bytes = bpf_get_task_stack(task, scratch->record.addresses, sizeof(scratch->record.addresses), 0);
		bpf_task_release(task);
		id = intern_kernel_stack(slot, scratch, bytes);
	}
	release_scratch(scratch);
	return id;
}

/* `task` may be any address: every read is checked. `with_stack`: also where it is, if it is not running. */
static __always_inline void note_holder(struct lock_holder *holder, struct task_struct *task, enum holder_kind kind,
					bool with_stack)
{
	holder->kind = kind;
	holder->tid = tid_of(targets.pid_namespace, task);
	holder->tgid = tgid_of(targets.pid_namespace, task);
	holder->pid = BPF_CORE_READ(task, pid);
	holder->stack = 0;
	bpf_core_read(&holder->comm, sizeof(holder->comm), &task->comm);
	if (is_on_cpu(task)) {
		holder->state = HOLDER_ON_CPU;
		return;
	}
	holder->state = is_queued(task) ? HOLDER_RUNNABLE : HOLDER_BLOCKED;
	if (with_stack)
		holder->stack = stack_of_other(holder->pid);
}

/* Who ended a wait that got no lock did not hold it. */
static __always_inline void forget_waker(struct lock_holder *holder)
{
	if (holder->kind == HOLDER_WAKER)
		holder->kind = HOLDER_UNKNOWN;
}

static __always_inline void note_mutex_owner(struct lock_holder *holder, struct mutex *mutex, bool with_stack)
{
	__u64 owner = BPF_CORE_READ(mutex, owner.counter) & ~OWNER_FLAGS;

	if (owner)
		note_holder(holder, (struct task_struct *)owner, HOLDER_OWNER, with_stack);
}

static __always_inline void note_rwsem_owner(struct lock_holder *holder, struct rw_semaphore *sem, bool with_stack)
{
	__u64 owner = BPF_CORE_READ(sem, owner.counter);

	if (!(owner & ~OWNER_FLAGS))
		return;
	note_holder(holder, (struct task_struct *)(owner & ~OWNER_FLAGS),
		    owner & RWSEM_READER_OWNED ? HOLDER_READER : HOLDER_OWNER, with_stack);
}

#endif
