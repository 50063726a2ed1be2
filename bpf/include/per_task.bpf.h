/* SPDX-License-Identifier: MIT */
/* per_task.bpf.h: where the targets' state lives: in task storage, or in a hash table on kernels without it.
 *
 * Task storage for tracing came with a10787e6d58c (5.12); it cannot outlive its task nor be inherited by the next one.
 * The hash table has the same guarantee: its key is the address of the task, which nobody else has until the kernel frees
 * it, and sched_process_free, just before that, removes the entry. Thread IDs would be wrong: they change at the exec of
 * a thread that is not the leader, and are free for others before the last reader of the old task is done.
 *
 * User space sets `members_in_hash` by trying (`Kernel::has_task_storage`) and creates only the map that is used; the
 * verifier drops the code for the other one.
 */
#ifndef __PER_TASK_BPF_H__
#define __PER_TASK_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "maps.bpf.h"

/* Preallocated: entries are made under no lock, but removed and looked up under the run queue's. */
#define MAX_HASHED_MEMBERS 65536

const volatile __u32 members_in_hash = 0;
const struct member no_member = {};

/* task → what it is doing */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

/* The same by address. */
MAP(HASH, hashed_members, __u64, struct member, MAX_HASHED_MEMBERS);

static __always_inline struct member *member_of(struct task_struct *task)
{
	__u64 address = (__u64)task;

	if (members_in_hash)
		return bpf_map_lookup_elem(&hashed_members, &address);
	return bpf_task_storage_get(&members, task, NULL, 0);
}

/* NULL when memory or room is short. */
static __always_inline struct member *new_member(struct task_struct *task)
{
	__u64 address = (__u64)task;

	if (!members_in_hash)
		return bpf_task_storage_get(&members, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_map_update_elem(&hashed_members, &address, &no_member, BPF_ANY);
	return bpf_map_lookup_elem(&hashed_members, &address);
}

static __always_inline void delete_member(struct task_struct *task)
{
	__u64 address = (__u64)task;

	if (members_in_hash)
		bpf_map_delete_elem(&hashed_members, &address);
	else
		bpf_task_storage_delete(&members, task);
}

SEC("?tp_btf/sched_process_free")
int BPF_PROG(task_freed, struct task_struct *task)
{
	delete_member(task);
	return 0;
}

#endif
