/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat.c: lockstat's programs for kernel locks on this machine, and what a test asks of them. No lock has a name or an owner. */
#include "vmlinux.h"
#include "host.h"
#include "no_stacks.h"
#include "no_futexes.h"
#include "no_names.h"
#include "../lockstat/lockstat.bpf.c"
#include "scheduler.h"

void host_begin(__u64 now)
{
	struct lockstat_config all = { .interrupts = 1, .kernel_locks = 1 };

	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

struct task_struct *host_thread(__u32 tid)
{
	struct task_struct *task = host_make_task(sizeof(*task));

	task->pid = task->tgid = tid;
	task->group_leader = task->real_parent = task;
	return task;
}

/* A lock that nobody owns. */
void *host_lock(void)
{
	return host_make_task(4096);
}

/* The clock closes the window there. */
void host_end(__u64 at)
{
	window_end_ns = at;
}

/* The iterator comes by a thread behind the window's end. */
void host_close(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	edge_ns = window_end_ns;
	close_waits(&context);
}

static struct lock_id host_id(const void *lock, __u32 flags)
{
	return (struct lock_id){ .address = (__u64)lock, .class = class_of(flags), .confidence = 100 };
}

/* Waits for a lock, ns of them, the longest, ns spinning and blocked, how many were given up, how many were open. */
void host_sums(const void *lock, __u32 flags, __u64 sums[7])
{
	struct lock_key key = { .lock = host_id(lock, flags) };
	struct lock_sum none = {}, *sum = bpf_map_lookup_elem(&locks, &key);

	sum = sum ?: &none;
	sums[0] = sum->contentions;
	sums[1] = sum->total_ns;
	sums[2] = sum->max_ns;
	sums[3] = sum->spin_ns;
	sums[4] = sum->block_ns;
	sums[5] = sum->given_up;
	sums[6] = sum->open;
}

/* Waits for a lock in the bucket of a length. */
__u64 host_bucket(const void *lock, __u32 flags, __u64 length_ns)
{
	struct lock_key key = { .lock = host_id(lock, flags), .bucket = hist_bucket(length_ns) };
	__u64 *count = bpf_map_lookup_elem(&lock_buckets, &key);

	return count ? *count : 0;
}

/* Waits of a thread for a lock, ns of them, the longest. */
void host_waiter(const void *lock, __u32 flags, __u32 tid, __u64 sums[3])
{
	struct waiter_key key = {
		.lock = host_id(lock, flags),
		.tgid = tid,
		.tid = tid,
		.mode = flags & LCB_F_READ ? WAIT_SHARED : WAIT_EXCLUSIVE,
	};
	struct waiter_value none = {}, *value = bpf_map_lookup_elem(&waiters, &key);

	value = value ?: &none;
	sums[0] = value->count;
	sums[1] = value->total_ns;
	sums[2] = value->max_ns;
}

/* Beginnings without an end, ends without a beginning, beginnings before the window. */
void host_lost(__u64 lost[3])
{
	lost[0] = kernel_lock_losses.unended;
	lost[1] = kernel_lock_losses.unbegun;
	lost[2] = begun_before;
}
