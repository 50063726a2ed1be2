/* SPDX-License-Identifier: MIT */
/* lock_chains.bpf.h: waits for a lock whose holder waits for another one.
 *
 * Locks are released from the far end of a chain to its beginning. So whoever is done waiting looks at what its holder has
 * waited for meanwhile: that is over, too, and knows what is behind it. Each thread keeps its last PAST_WAITS waits for this.
 *
 * A holder's wait counts only where it had the lock all the while: it began before ours, when the lock named the holder, or
 * it is the holder who ended our wait.
 */
#ifndef __LOCK_CHAINS_BPF_H__
#define __LOCK_CHAINS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "branchless.bpf.h"
#include "lock_counts.bpf.h"
#include "lock_history.bpf.h"
#include "maps.bpf.h"
#include "members.bpf.h"

/* kfuncs of 6.2. Programs of classic tracepoints may call them since bc638d8cb5be (6.12): bpf_task_from_vpid, of 6.14, stands
 * for that.
 */
struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
void bpf_task_release(struct task_struct *task) __ksym __weak;

#define MAX_CHAINS 16384
/* In a shorter wait there is no room for another thread's, with its wakeup. */
#define CHAINED_WAIT_NS 20000

struct chain_key {
	struct lock_id lock;
	__u32 waiter_tid;
	__u32 holder_tid;
	/* What the holder waited for meanwhile: another row's id; 0: nothing. */
	__u64 next;
};

/* By half of the tables. They only grow; user space subtracts what it knows. */
struct chain_half {
	__u64 waits;
	__u64 total_ns;
	/* Of this the holder waited for what is next. */
	__u64 next_ns;
};

struct chain_value {
	__u64 id;
	__u32 waiter_tgid;
	__u32 holder_tgid;
	/* enum holder_kind */
	__u32 kind;
	__u32 pad;
	__u8 waiter_comm[16];
	__u8 holder_comm[16];
	struct chain_half halves[2];
};

/* (lock, waiter, holder, what the holder waits for) → how long */
MAP(HASH, chains, struct chain_key, struct chain_value, MAX_CHAINS);

/* Chained waits that found no room. */
__u64 chains_full = 0;

/* Their common part in [from, to], ns. */
static __always_inline __u64 overlap_ns(const struct past_wait *past, __u64 from, __u64 to)
{
	from = larger_of(from, past->begin_ns);
	to = smaller_of(to, past->end_ns);
	return larger_of(to, from) - from;
}

/* The longest of the holder's waits during ours; NULL: none. */
static __always_inline struct past_wait *longest_meanwhile(struct lock_history *past, struct lock_wait *wait, __u64 now,
							   __u64 *length_ns)
{
	/* Who released it had it until then. */
	__u64 begun_by = wait->waker_pid == wait->holder.pid ? wait->released_ns : wait->begin_ns;
	__u64 longest_ns = 0, at = 0;

	for (__u32 i = 0; i < PAST_WAITS; i++) {
		struct past_wait *candidate = &past->waits[i];
		__u64 begin_ns = candidate->begin_ns;
		/* Whoever had been released waited for a CPU, not for a lock. */
		__u64 counts = is_below(wait->begin_ns, candidate->released_ns) & is_below(0, begin_ns) &
			       (1 - is_below(begun_by, begin_ns));
		__u64 ns = overlap_ns(candidate, wait->begin_ns, now) & -counts;
		__u64 is_longer = is_below(longest_ns, ns);

		longest_ns += (ns - longest_ns) & -is_longer;
		at += (i - at) & -is_longer;
	}
	*length_ns = longest_ns;
	return longest_ns ? &past->waits[at & (PAST_WAITS - 1)] : NULL;
}

/* One that no other row has: made on this CPU, in this nanosecond. Counting would need an atomic operation of Linux 5.12. */
static __always_inline __u64 new_chain_id(void)
{
	return bpf_ktime_get_ns() << 12 | (bpf_get_smp_processor_id() & 0xfff);
}

static __always_inline struct chain_value *chain_row(struct chain_key *key, struct chain_value *first)
{
	struct chain_value *row = bpf_map_lookup_elem(&chains, key);

	if (row)
		return row;
	first->id = new_chain_id();
	bpf_map_update_elem(&chains, key, first, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&chains, key);
	if (!row)
		__sync_fetch_and_add(&chains_full, 1);
	return row;
}

/* The row of a wait of our holder's; 0: no room. */
static __noinline __u64 link_of(struct lock_wait *wait, struct past_wait *past)
{
	struct chain_key key = {
		.lock = past->lock,
		.waiter_tid = wait->holder.tid,
		.holder_tid = past->holder_tid,
		.next = past->next,
	};
	struct chain_value first = {
		.waiter_tgid = wait->holder.tgid,
		.holder_tgid = past->holder_tgid,
		.kind = past->kind,
	}, *row;

	__builtin_memcpy(first.waiter_comm, wait->holder.comm, sizeof(first.waiter_comm));
	__builtin_memcpy(first.holder_comm, past->holder_comm, sizeof(first.holder_comm));
	row = chain_row(&key, &first);
	return row ? row->id : 0;
}

static __noinline int count_chained(struct lock_wait *wait, struct task_struct *task, __u64 next, __u64 total_ns, __u64 next_ns)
{
	struct chain_key key = {
		.lock = wait->lock,
		.waiter_tid = tid_of(targets.pid_namespace, task),
		.holder_tid = wait->holder.tid,
		.next = next,
	};
	struct chain_value first = {
		.waiter_tgid = tgid_of(targets.pid_namespace, task),
		.holder_tgid = wait->holder.tgid,
		.kind = wait->holder.kind,
	}, *row;
	struct chain_half *half;

	bpf_core_read(&first.waiter_comm, sizeof(first.waiter_comm), &task->comm);
	__builtin_memcpy(first.holder_comm, wait->holder.comm, sizeof(first.holder_comm));
	row = chain_row(&key, &first);
	if (!row)
		return 0;
	half = &row->halves[epoch & 1];
	__sync_fetch_and_add(&half->waits, 1);
	__sync_fetch_and_add(&half->total_ns, total_ns);
	__sync_fetch_and_add(&half->next_ns, next_ns);
	return 0;
}

static __noinline struct lock_history *history_of(__u32 pid)
{
	struct task_struct *task;
	struct member *member;

	if (!bpf_ksym_exists(bpf_task_from_vpid) || !bpf_ksym_exists(bpf_task_from_pid))
		return NULL;
	task = bpf_task_from_pid(pid);
	if (!task)
		return NULL;
	member = member_of(task);
	bpf_task_release(task);
	return member ? &member->past : NULL;
}

/* What the holder waited for meanwhile: id of a row; 0: nothing. */
static __noinline __u64 chain_behind(struct lock_wait *wait, struct task_struct *task, __u64 now)
{
	struct lock_history *past;
	struct past_wait *link;
	__u64 begin_ns, next_ns;
	__u64 next;

	/* Readers are many, and a waker need not have had the lock all the while. */
	if (wait->holder.kind != HOLDER_OWNER || now - wait->begin_ns < CHAINED_WAIT_NS)
		return 0;
	past = history_of(wait->holder.pid);
	if (!past)
		return 0;
	link = longest_meanwhile(past, wait, now, &next_ns);
	if (!link)
		return 0;
	begin_ns = link->begin_ns;
	next = link_of(wait, link);
	/* Else the holder is done with yet another wait, and its place has been used again. */
	if (!next || link->begin_ns != begin_ns || overlap_ns(link, wait->begin_ns, now) != next_ns)
		return 0;
	count_chained(wait, task, next, now - wait->begin_ns, next_ns);
	return next;
}

/* A wait in which the thread slept is over. */
static __always_inline void remember_wait(struct lock_wait *wait, struct task_struct *task, __u64 now)
{
	struct member *member;
	struct past_wait *past;
	__u64 next;

	if (!in_window(now) || wait->begin_ns < window_start_ns || now - wait->begin_ns < CHAINED_WAIT_NS)
		return;
	next = chain_behind(wait, task, now);
	member = member_of(task);
	if (!member)
		return;
	past = &member->past.waits[member->past.at++ & (PAST_WAITS - 1)];
	/* Whoever reads it meanwhile sees that it changes. */
	*(volatile __u64 *)&past->begin_ns = 0;
	barrier();
	past->end_ns = now;
	past->released_ns = wait->released_ns ? wait->released_ns : now;
	past->lock = wait->lock;
	past->holder_tgid = wait->holder.kind ? wait->holder.tgid : 0;
	past->holder_tid = wait->holder.kind ? wait->holder.tid : 0;
	__builtin_memcpy(past->holder_comm, wait->holder.comm, sizeof(past->holder_comm));
	past->next = next;
	past->kind = wait->holder.kind;
	barrier();
	*(volatile __u64 *)&past->begin_ns = wait->begin_ns;
}

#endif
