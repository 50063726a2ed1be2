/* SPDX-License-Identifier: MIT */
/* lock_names.bpf.h: what can be learnt of a kernel lock from its address, once per lock. */
#ifndef __LOCK_NAMES_BPF_H__
#define __LOCK_NAMES_BPF_H__

#include "lock_counts.bpf.h"
#include <bpf/bpf_tracing.h>
#include "maps.bpf.h"
#include "waits.bpf.h"

/* kfunc of 6.14: the slab cache that an address was allocated from. */
struct kmem_cache *bpf_get_kmem_cache(u64 address) __ksym __weak;

enum lock_name_kind {
	/* `slab`, if there is one, is all that is known. */
	LOCK_NAME_NONE = 0,
	/* mmap_lock of process lock_id.tgid. */
	LOCK_NAME_MMAP,
	/* A CPU's run queue; `number`: the CPU. */
	LOCK_NAME_RUN_QUEUE,
	/* A pipe's mutex; `number`: its inode, 0 if not known. */
	LOCK_NAME_PIPE,
	/* Locks of an inode; `number`: of the inode; `text`: a name it has; `device`. */
	LOCK_NAME_INODE,
	LOCK_NAME_INODE_QUEUE,
	LOCK_NAME_INODE_STATE,
	LOCK_NAME_INODE_MAPPINGS,
	LOCK_NAME_INODE_INVALIDATE,
	LOCK_NAME_INODE_PAGES,
};

struct lock_name {
	__u64 number;
	/* The stack that was walked first: its caller names what nothing else does. */
	__u64 kernel_stack;
	/* enum lock_name_kind */
	__u8 kind;
	/* Of an inode: its type, S_IFMT >> 12. */
	__u8 file_type;
	__u8 pad[6];
	/* Empty, too, where caches were merged: the name is that of one of several types. */
	__u8 slab[32];
	/* Process of an mmap_lock, name of a file. */
	__u8 text[32];
	__u8 device[32];
};

MAP(HASH, lock_names, struct lock_id, struct lock_name, MAX_LOCKS);

/* address of a run queue's lock → its CPU; user space sets as many as there may be. */
MAP(HASH, run_queues, __u64, __u32, 1);

/* Each CPU has threads that never leave it: by way of their run queues all are found. */
static __always_inline void note_run_queue(struct task_struct *task)
{
	struct cfs_rq *queue = BPF_CORE_READ(task, se.cfs_rq);
	struct rq *rq;
	__u64 lock;
	__u32 cpu;

	/* CONFIG_FAIR_GROUP_SCHED; renamed by 5cb9eaa3d274 (5.14), before anything was said of locks. */
	if (!bpf_core_field_exists(queue->rq) || !bpf_core_field_exists(struct rq, __lock))
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
	if (slab && slab->refcount == 1)
		bpf_probe_read_kernel_str(name->slab, sizeof(name->slab), slab->name);
}

/* Whether there is an inode: it begins `offset` bytes before `lock`, and its own page cache points back at it. */
static __always_inline bool is_inode_at(__u64 lock, __u64 offset)
{
	struct inode *inode = (struct inode *)(lock - offset);

	return BPF_CORE_READ(inode, i_data.host) == inode;
}

static __always_inline __u64 offset_in_inode(enum lock_name_kind kind)
{
	struct inode *inode = NULL;
	struct address_space *pages = NULL;
	struct rw_semaphore *sem = NULL;

	switch (kind) {
	case LOCK_NAME_INODE:
		return bpf_core_field_offset(inode->i_rwsem);
	case LOCK_NAME_INODE_QUEUE:
		return bpf_core_field_offset(inode->i_rwsem) + bpf_core_field_offset(sem->wait_lock);
	case LOCK_NAME_INODE_STATE:
		return bpf_core_field_offset(inode->i_lock);
	case LOCK_NAME_INODE_MAPPINGS:
		return bpf_core_field_offset(inode->i_data) + bpf_core_field_offset(pages->i_mmap_rwsem);
	case LOCK_NAME_INODE_INVALIDATE:
		/* 730633f0b7f9 (5.15); no inode begins at a lock. */
		if (!bpf_core_field_exists(pages->invalidate_lock))
			return 0;
		return bpf_core_field_offset(inode->i_data) + bpf_core_field_offset(pages->invalidate_lock);
	default:
		return bpf_core_field_offset(inode->i_data) + bpf_core_field_offset(pages->i_pages);
	}
}

static __always_inline __u64 offset_of_alias(void)
{
	struct dentry___named_union *named = NULL;
	struct dentry *dentry = NULL;

	if (bpf_core_field_exists(named->d_u.d_alias))
		return bpf_core_field_offset(named->d_u.d_alias);
	return bpf_core_field_offset(dentry->d_alias);
}

/* Any of its names: an inode may have several, or none any more. */
static __always_inline void describe_inode(struct lock_name *name, struct inode *inode)
{
	struct dentry *dentry;
	struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);

	name->number = BPF_CORE_READ(inode, i_ino);
	name->file_type = BPF_CORE_READ(inode, i_mode) >> 12;
	BPF_CORE_READ_STR_INTO(&name->device, inode, i_sb, s_id);
	if (!alias)
		return;
	dentry = (struct dentry *)((__u64)alias - offset_of_alias());
	bpf_probe_read_kernel_str(name->text, sizeof(name->text), BPF_CORE_READ(dentry, d_name.name));
}

static __always_inline bool name_inode_lock(struct lock_name *name, __u64 lock)
{
	for (int kind = LOCK_NAME_INODE; kind <= LOCK_NAME_INODE_PAGES; kind++) {
		__u64 offset = offset_in_inode(kind);

		if (!is_inode_at(lock, offset))
			continue;
		name->kind = kind;
		describe_inode(name, (struct inode *)(lock - offset));
		return true;
	}
	return false;
}

/* A list's head whose first entry points back at it. */
static __always_inline bool is_list_at(struct list_head *head)
{
	return BPF_CORE_READ(head, next, prev) == head;
}

/* The inode of the file that the waiter's system call is about, if this pipe is behind it. */
static __always_inline __u64 inode_of_pipe(struct task_struct *task, struct pipe_inode_info *pipe)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct file *file = open_file(task, PT_REGS_PARM1_CORE_SYSCALL(regs));
	struct inode *inode = BPF_CORE_READ(file, f_inode);

	return inode && BPF_CORE_READ(inode, i_pipe) == pipe ? BPF_CORE_READ(inode, i_ino) : 0;
}

static __always_inline bool name_pipe_lock(struct lock_name *name, struct task_struct *task, __u64 lock)
{
	struct pipe_inode_info *pipe = NULL;

	pipe = (struct pipe_inode_info *)(lock - bpf_core_field_offset(pipe->mutex));
	if (!is_list_at(&pipe->rd_wait.head) || !is_list_at(&pipe->wr_wait.head))
		return false;
	name->kind = LOCK_NAME_PIPE;
	name->number = inode_of_pipe(task, pipe);
	return true;
}

/* Insertions are rare: once per lock. */
static __noinline void name_lock(struct lock_wait *wait, struct task_struct *task)
{
	struct lock_name name = {};
	__u32 *cpu;
	struct task_struct *leader;
	long error;

	if (is_lock_named(&wait->lock))
		return;
	name.kernel_stack = wait->kernel_stack;
	cpu = bpf_map_lookup_elem(&run_queues, &wait->lock.address);
	if (cpu) {
		name.kind = LOCK_NAME_RUN_QUEUE;
		name.number = *cpu;
	} else if (wait->lock.tgid) {
		name.kind = LOCK_NAME_MMAP;
		leader = BPF_CORE_READ(task, group_leader);
		bpf_core_read(&name.text, sizeof(leader->comm), &leader->comm);
	}
	read_slab(&name, wait->lock.address);
	if (!name.kind && wait->lock.class == KERNEL_MUTEX)
		name_pipe_lock(&name, task, wait->lock.address);
	else if (!name.kind)
		name_inode_lock(&name, wait->lock.address);
	error = bpf_map_update_elem(&lock_names, &wait->lock, &name, BPF_NOEXIST);
	if (error && error != -17 /* EEXIST: two came to a new lock at once */)
		__sync_fetch_and_add(&lock_losses.names_full, 1);
}

#endif
