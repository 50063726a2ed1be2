/* SPDX-License-Identifier: MIT */
/* lock_names.bpf.h: what can be learnt of a kernel lock from its address, once per lock. */
#ifndef __LOCK_NAMES_BPF_H__
#define __LOCK_NAMES_BPF_H__

#include "lock_tables.bpf.h"

/* kfunc of 6.14: the slab cache that an address was allocated from. */
struct kmem_cache *bpf_get_kmem_cache(u64 address) __ksym __weak;

enum lock_name_kind {
	/* `slab`, if there is one, is all that is known. */
	LOCK_NAME_NONE = 0,
	/* mmap_lock of process lock_id.tgid. */
	LOCK_NAME_MMAP,
	/* A CPU's run queue; `number`: the CPU. */
	LOCK_NAME_RUN_QUEUE,
};

struct lock_name {
	__u64 number;
	/* The stack that was walked first: its caller names what nothing else does. */
	__u64 kernel_stack;
	__u8 kind;
	__u8 pad[7];
	__u8 slab[32];
	/* Process of an mmap_lock. */
	__u8 text[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOCKS);
	__type(key, struct lock_id);
	__type(value, struct lock_name);
} lock_names SEC(".maps");

/* address of a run queue's lock → its CPU; user space sets as many as there may be. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} run_queues SEC(".maps");

/* Each CPU has threads that never leave it: by way of their run queues all are found. */
static __always_inline void note_run_queue(struct task_struct *task)
{
	struct cfs_rq *queue = BPF_CORE_READ(task, se.cfs_rq);
	struct rq *rq;
	__u64 lock;
	__u32 cpu;

	/* CONFIG_FAIR_GROUP_SCHED */
	if (!bpf_core_field_exists(queue->rq))
		return;
	rq = BPF_CORE_READ(queue, rq);
	lock = (__u64)rq + bpf_core_field_offset(rq->__lock);
	cpu = BPF_CORE_READ(rq, cpu);
	if (rq && !bpf_map_lookup_elem(&run_queues, &lock))
		bpf_map_update_elem(&run_queues, &lock, &cpu, BPF_NOEXIST);
}

static __always_inline bool is_own_mmap_lock(struct task_struct *task, __u64 lock)
{
	struct mm_struct *mm = task->mm;

	return mm && lock == (__u64)mm + bpf_core_field_offset(mm->mmap_lock);
}

static __always_inline bool is_lock_named(const struct lock_id *lock)
{
	return bpf_map_lookup_elem(&lock_names, lock);
}

static __always_inline void read_slab(struct lock_name *name, __u64 address)
{
	struct kmem_cache *slab;

	if (!bpf_ksym_exists(bpf_get_kmem_cache))
		return;
	slab = bpf_get_kmem_cache(address);
	if (slab)
		bpf_probe_read_kernel_str(name->slab, sizeof(name->slab), slab->name);
}

/* Insertions are rare: once per lock. */
static __noinline void name_lock(struct lock_wait *wait, struct task_struct *task)
{
	struct lock_name name = {};
	__u32 *cpu;

	if (is_lock_named(&wait->lock))
		return;
	name.kernel_stack = wait->kernel_stack;
	cpu = bpf_map_lookup_elem(&run_queues, &wait->lock.address);
	if (cpu) {
		name.kind = LOCK_NAME_RUN_QUEUE;
		name.number = *cpu;
	} else if (wait->lock.tgid) {
		name.kind = LOCK_NAME_MMAP;
		BPF_CORE_READ_INTO(&name.text, task, group_leader, comm);
	}
	read_slab(&name, wait->lock.address);
	bpf_map_update_elem(&lock_names, &wait->lock, &name, BPF_NOEXIST);
}

#endif
