/* SPDX-License-Identifier: MIT */
/* offcpu_processes.bpf.h: the time of threads by process: of those that live on the closing iterator tells, here are the others. */
#ifndef __OFFCPU_PROCESSES_BPF_H__
#define __OFFCPU_PROCESSES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "offcpu_config.bpf.h"
#include "rows.bpf.h"

#define MAX_PROCESSES 16384

/* Times of threads that have ended, or are targets no longer. */
struct process_time {
	__u64 threads;
	__u64 lifetime_ns;
	__u64 oncpu_ns;
	__u64 unseen_ns;
	__u64 lost_ns;
};

/* tgid → their time */
MAP(HASH, processes, __u32, struct process_time, MAX_PROCESSES);

static __always_inline void add_oncpu(struct member *member, __u64 oncpu_ns, struct offcputime_totals *sums)
{
	sums->oncpu_ns += oncpu_ns;
	member->oncpu_ns += oncpu_ns;
}

static __always_inline void add_to_process(const struct member *member, struct task_struct *task, __u64 lifetime_ns)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);
	struct process_time none = {}, *process = ROW_OF(&processes, &tgid, none);

	if (!process) {
		__sync_fetch_and_add(&losses.processes_full, 1);
		return;
	}
	/* Its threads end on several CPUs. */
	__sync_fetch_and_add(&process->threads, 1);
	__sync_fetch_and_add(&process->lifetime_ns, lifetime_ns);
	__sync_fetch_and_add(&process->oncpu_ns, member->oncpu_ns);
	__sync_fetch_and_add(&process->unseen_ns, member->unseen_ns);
	__sync_fetch_and_add(&process->lost_ns, member->lost_ns);
}

/* The target is seen no more. */
static __always_inline void end_lifetime(const struct member *member, struct task_struct *task, __u64 now,
					 struct offcputime_totals *sums)
{
	__u64 lifetime_ns = elapsed(member->joined_ns, now);

	sums->lifetime_ns += lifetime_ns;
	if (config.details)
		add_to_process(member, task, lifetime_ns);
}

#endif
