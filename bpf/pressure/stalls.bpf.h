/* SPDX-License-Identifier: MIT */
/* stalls.bpf.h: per CPU, how many tasks wait for it, integrated over time.
 *
 * The difference of that integral over a task's time on the CPU is the time that others waited behind it.
 */
#ifndef __STALLS_BPF_H__
#define __STALLS_BPF_H__

#include "vmlinux.h"
#include "compat.bpf.h"
#include "maps.bpf.h"
#include <bpf/bpf_helpers.h>

/* User space sets as many as there may be. */
#define MAX_CPUS 1

/* A task is in any number of these. */
enum stall_count {
	/* Runnable, not on a CPU. */
	COUNT_WAITING = 0,
	/* The same, without quota: nobody on the CPU is to blame. */
	COUNT_THROTTLED,
	COUNTS,
};

/* State of one CPU. The lock is needed: wakeups and migrations change it from other CPUs. */
struct stalls {
	struct bpf_spin_lock lock;
	__s32 counts[COUNTS];
	/* A task runs there now. */
	__u32 busy;
	__u64 since_ns;
	/* Waiting tasks × ns, as far as something ran meanwhile. */
	__u64 waited_ns;
	/* Tasks without quota × ns. */
	__u64 throttled_ns;
};

MAP(ARRAY, stalls, __u32, struct stalls, MAX_CPUS);

static __always_inline __u64 passed_ns(__u64 since, __u64 now)
{
	return now > since ? now - since : 0;
}

/* The time that has passed goes to what held in it. Under the lock. */
static __always_inline void pass_time(struct stalls *cpu, __u64 now)
{
	/* Events of two CPUs may take the lock in another order than they took the time. */
	__u64 passed = passed_ns(cpu->since_ns, now);

	if (!cpu->since_ns)
		passed = 0;
	if (now > cpu->since_ns)
		cpu->since_ns = now;
	if (cpu->busy && cpu->counts[COUNT_WAITING] > 0)
		cpu->waited_ns += passed * cpu->counts[COUNT_WAITING];
	if (cpu->counts[COUNT_THROTTLED] > 0)
		cpu->throttled_ns += passed * cpu->counts[COUNT_THROTTLED];
}

static __always_inline struct stalls *stalls_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&stalls, &cpu);
}

/* Tracing programs of Linux 5.10 may not take bpf_spin_lock. There the lock of a CPU is an entry in this table, which only
 * one can make. An interrupt on top of its holder would wait for ever: it goes ahead unlocked, and is counted.
 */
MAP(HASH, stall_locks, __u32, __u8, MAX_CPUS);

const volatile __u32 locks_in_hash = 0;
const __u8 locked = 1;
__u64 unlocked = 0;

/* Some 100 ns each: longer than a holder takes. */
#define LOCK_TRIES 64

static __always_inline bool hash_lock(__u32 cpu)
{
	for (int i = 0; i < LOCK_TRIES; i++)
		if (!bpf_map_update_elem(&stall_locks, &cpu, &locked, BPF_NOEXIST))
			return true;
	__sync_fetch_and_add(&unlocked, 1);
	return false;
}

/* Everything about `at`, the counters of `cpu`, that must happen in one go: the statements in `body`. */
#define LOCKED(at, cpu, body)                                          \
	do {                                                           \
		if (locks_in_hash) {                                   \
			bool held = hash_lock(cpu);                    \
			body;                                          \
			if (held)                                      \
				bpf_map_delete_elem(&stall_locks, &cpu); \
		} else {                                               \
			bpf_spin_lock(&(at)->lock);                    \
			body;                                          \
			bpf_spin_unlock(&(at)->lock);                  \
		}                                                      \
	} while (0)

/* `counted`: bits 1 << enum stall_count. Atomically: a count that is off would stay so. */
static __always_inline void change_counts(struct stalls *cpu, __u32 counted, __s32 by)
{
	for (int i = 0; i < COUNTS; i++)
		if (counted & (1 << i))
			__sync_fetch_and_add(&cpu->counts[i], by);
}

/* Verified by itself, once, and not with every caller. */
__attribute__((noinline)) int recount_locked(__u32 cpu, __u32 leaves, __u32 joins, __u64 now)
{
	struct stalls *at = stalls_of(cpu);

	if (!at)
		return 0;
	LOCKED(at, cpu, {
		pass_time(at, now);
		change_counts(at, leaves & ~joins, -1);
		change_counts(at, joins & ~leaves, 1);
	});
	return 0;
}

/* A task goes from one set of counters to another. */
static __always_inline void recount(__u32 cpu, __u32 leaves, __u32 joins, __u64 now)
{
	if (leaves != joins)
		recount_locked(cpu, leaves, joins, now);
}

#endif
