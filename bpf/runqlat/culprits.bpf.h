/* SPDX-License-Identifier: MIT */
/* culprits.bpf.h: which tasks ran on a CPU while others waited for it.
 *
 * Each CPU remembers its latest slices; a wait that ends there is shared out among the tasks that ran meanwhile.
 */
#ifndef __CULPRITS_BPF_H__
#define __CULPRITS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "members.bpf.h"

#define MAX_CULPRITS 16384

/* Tasks that found no room in `culprits`. */
__u64 culprits_full = 0;

/* Slices looked back on for the tasks that a wait was behind; what lies before them has no name. */
#define SLICES 8

struct slice {
	__u64 start_ns;
	__u32 tid;
	__u32 tgid;
};

/* Stands for the quota that a wait was for, in place of a thread. */
#define QUOTA_TID (~0U)

/* What ran on a CPU lately, a ring. */
struct cpu_history {
	__u64 last_switch_ns;
	__u32 next;
	__u32 pad;
	struct slice slices[SLICES];
};

PER_CPU(history, struct cpu_history);

struct culprit_key {
	__u32 tid;
	__u32 epoch;
	/* The process that waited; 0: all of them together. */
	__u32 victim;
	__u32 pad;
};

struct culprit {
	__u64 caused_ns;
	__u64 waits;
	__u32 tgid;
	__u32 pad;
	/* Empty when it was not at hand at the first time. */
	__u8 comm[16];
};

/* task → time that others waited while it ran; tid 0: before the slices remembered */
MAP(HASH, culprits, struct culprit_key, struct culprit, MAX_CULPRITS);

/* `key` without a thread. */
static __always_inline void blame(struct culprit_key key, __u32 tid, __u32 tgid, __u64 caused_ns,
				  struct task_struct *task)
{
	struct culprit *culprit, first = { .tgid = tgid };

	key.tid = tid;
	culprit = bpf_map_lookup_elem(&culprits, &key);
	if (!culprit) {
		if (task)
			bpf_core_read(&first.comm, sizeof(first.comm), &task->comm);
		bpf_map_update_elem(&culprits, &key, &first, BPF_NOEXIST);
		culprit = bpf_map_lookup_elem(&culprits, &key);
	}
	if (!culprit) {
		__sync_fetch_and_add(&culprits_full, 1);
		return;
	}
	__sync_fetch_and_add(&culprit->caused_ns, caused_ns);
	__sync_fetch_and_add(&culprit->waits, 1);
}

/* Shares the wait [since, now) out among the tasks that ran on this CPU meanwhile, latest first. */
static __always_inline void blame_history(struct cpu_history *cpu, struct task_struct *prev,
					  struct culprit_key key, __u64 since, __u64 now)
{
	__u64 end = now;

	for (__u32 back = 1; back <= SLICES; back++) {
		struct slice *slice = &cpu->slices[(cpu->next - back) % SLICES];
		__u64 start = slice->start_ns;

		if (!start || start >= end)
			break;
		if (slice->tid)
			blame(key, slice->tid, slice->tgid, end - (start > since ? start : since),
			      back == 1 ? prev : NULL);
		if (start <= since)
			return;
		end = start;
	}
	blame(key, 0, 0, end - since, NULL);
}

/* The slice of `prev` ends. */
static __always_inline void remember_slice(struct cpu_history *cpu, struct task_struct *prev, __u64 now)
{
	struct slice *slice = &cpu->slices[cpu->next % SLICES];

	slice->start_ns = cpu->last_switch_ns ?: window_start_ns;
	if (pid_namespace_level) {
		slice->tid = tid_of(targets.pid_namespace, prev);
		slice->tgid = tgid_of(targets.pid_namespace, prev);
	} else {
		/* Direct reads: this runs at every switch. */
		slice->tid = prev->pid;
		slice->tgid = prev->tgid;
	}
	cpu->next++;
	cpu->last_switch_ns = now;
}

#endif
