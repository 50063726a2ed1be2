/* SPDX-License-Identifier: MIT */
/* lock_tables.bpf.h: waits for locks, kernel's and programs' alike, on their way to user space.
 *
 * A wait is a `struct lock_wait` in its thread's storage while it lasts; `count_wait` (lock_counts.bpf.h) adds it to four tables: sums and
 * buckets by lock, which are exact; who waited where; who held it. Each has two halves, see `epoch`.
 *
 * Inserting happens in whatever context the wait ends, perhaps under another lock: look-ups come first, insertions are
 * rare, and the tables are preallocated.
 */
#ifndef __LOCK_TABLES_BPF_H__
#define __LOCK_TABLES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "histogram.bpf.h"
#include "maps.bpf.h"
#include "meanwhile.bpf.h"
#include "stack_limit.bpf.h"
#include "targets.bpf.h"
#include "window.bpf.h"

#define MAX_LOCKS 16384
#define MAX_LOCK_BUCKETS 131072
#define MAX_WAITERS 65536
#define MAX_HOLDERS 16384

/* 0 or 1: waits that end now go there; user space reads the other one. */
__u32 epoch = 0;
/* Where the closing iterator puts waits that are still open at `edge_ns`, the end of the interval. */
__u32 open_epoch = 0;
__u64 edge_ns = 0;

enum lock_side {
	LOCK_KERNEL = 0,
	LOCK_USER = 1,
};

/* Which lock. */
struct lock_id {
	/* Of the lock in the kernel, or in the process. */
	__u64 address;
	/* If a futex stands for a thread and not for a lock: the waiter's stack, or the class of what Java waits for; else 0. */
	__u64 object;
	/* The process that has it, where one has: private futexes, mmap_lock. */
	__u32 tgid;
	/* enum lock_side */
	__u8 side;
	/* enum kernel_lock_class; of a futex, enum futex_operation. */
	__u8 class;
	/* 100; of a futex, enum futex_call_flags. */
	__u8 confidence;
	__u8 pad;
};

enum wait_mode {
	WAIT_EXCLUSIVE = 0,
	WAIT_SHARED = 1,
};

enum holder_kind {
	HOLDER_UNKNOWN = 0,
	/* The lock says so. */
	HOLDER_OWNER,
	/* One of several readers, the last that came. */
	HOLDER_READER,
	/* Whoever ended the wait. */
	HOLDER_WAKER,
};

enum holder_state {
	HOLDER_ON_CPU = 0,
	HOLDER_RUNNABLE,
	HOLDER_BLOCKED,
	HOLDER_STATES,
};

/* Who had the lock when the wait began. */
struct lock_holder {
	/* Interned kernel stack, where asked for. */
	__u64 stack;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	/* In the initial namespace. */
	__u32 pid;
	__u8 kind;
	__u8 state;
	__u8 pad[2];
};

/* One wait. Written in the waiter's own context; in its wakers', who they are; and by the closing iterator. */
struct lock_wait {
	struct lock_id lock;
	__u64 begin_ns;
	/* When what it is doing now, spinning or blocking, began. */
	__u64 part_ns;
	/* Up to here it is in an earlier interval's report. */
	__u64 reported_ns;
	__u64 spin_ns;
	__u64 block_ns;
	/* Part of block_ns: runnable, but not yet on a CPU. */
	__u64 run_queue_ns;
	__u64 kernel_stack;
	__u64 user_stack;
	__u64 waker;
	/* The thread that released a futex last, in the initial namespace; 0: none did. */
	__u32 waker_pid;
	/* Frames of user_stack, from the leaf on, that lie inside of where the thread waits for work. */
	__u32 inside;
	struct lock_holder holder;
	/* Doings of the thread that ended the wait since it began, ns. */
	__u64 meanwhile[MEANWHILE_ROOM];
	/* enum wait_mode */
	__u8 mode;
	__u8 is_spinning;
	/* Its stacks were asked for. */
	__u8 is_walked;
	/* It is in a report already: as an open one. */
	__u8 is_counted;
	/* It had not to wait after all (user locks). */
	__u8 is_raced;
	/* It ended without the lock: a signal, a timeout. */
	__u8 is_given_up;
	__u8 pad[2];
};

struct lock_key {
	struct lock_id lock;
	__u32 epoch;
	/* 0 in `locks`. */
	__u32 bucket;
};

struct lock_sum {
	__u64 contentions;
	__u64 total_ns;
	/* Of that: waits that an earlier interval has counted. */
	__u64 carried_ns;
	__u64 max_ns;
	/* Who is about to raise max_ns. */
	__u64 raising;
	__u64 spin_ns;
	__u64 block_ns;
	__u64 run_queue_ns;
	__u64 raced;
	__u64 given_up;
	/* Of the contentions: not over at the end of the interval. */
	__u64 open;
};

struct waiter_key {
	struct lock_id lock;
	__u64 kernel_stack;
	__u64 user_stack;
	__u64 waker;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u32 epoch;
	__u8 mode;
	__u8 pad[3];
};

struct waiter_value {
	__u64 count;
	__u64 total_ns;
	__u64 run_queue_ns;
	__u64 max_ns;
	/* Who is about to raise max_ns. */
	__u64 raising;
	/* Frames of the longest wait, from the leaf on, that lay inside of where the thread waits for work; 0: none, or nobody knows. */
	__u64 inside;
};

struct holder_key {
	struct lock_id lock;
	__u64 stack;
	__u32 tid;
	__u32 tgid;
	__u32 epoch;
	__u8 kind;
	__u8 pad[3];
};

struct holder_value {
	/* Waits that began while it held the lock, and their time. */
	__u64 waits;
	__u64 caused_ns;
	/* What it was doing then. */
	__u64 states[HOLDER_STATES];
	/* Doings of the one that ended the waits while they lasted, ns. */
	__u64 meanwhile[MEANWHILES];
	__u8 comm[16];
};

struct lock_losses {
	/* Waits on locks that found no room, and their time: in no row at all. */
	__u64 locks_full;
	__u64 locks_full_ns;
	/* In a lock's sum, but in no bucket; without waiter; without holder. */
	__u64 buckets_full;
	__u64 waiters_full;
	__u64 waiters_full_ns;
	__u64 holders_full;
	/* Waits for kernel locks whose names found no room. */
	__u64 names_full;
	/* No scratch for a holder's stack. */
	__u64 holders_unwalked;
	/* Maxima written beside another CPU's, which may have been greater. */
	__u64 maxima_raced;
	/* A clock that went backwards. */
	__u64 negative;
};

struct lock_losses lock_losses = {};

/* (lock, half) → sums */
MAP(HASH, locks, struct lock_key, struct lock_sum, MAX_LOCKS);

/* (lock, half, bucket) → waits */
MAP(HASH, lock_buckets, struct lock_key, __u64, MAX_LOCK_BUCKETS);

/* (lock, thread, stacks, half) → waits */
MAP(HASH, waiters, struct waiter_key, struct waiter_value, MAX_WAITERS);

/* (lock, holder, its stack, half) → waits caused */
MAP(HASH, holders, struct holder_key, struct holder_value, MAX_HOLDERS);

#endif
