/* SPDX-License-Identifier: MIT */
/* futex_state.bpf.h: a thread's wait on a futex, part of the tool's `struct member`. */
#ifndef __FUTEX_STATE_BPF_H__
#define __FUTEX_STATE_BPF_H__

#include "futex_call.bpf.h"
#include "lock_tables.bpf.h"
#include "outer_wait.bpf.h"

/* The futex word and what follows it. */
#define LOCK_WORDS 8

/* Where a holder's ID was found. */
enum holder_place {
	HOLDER_NOWHERE = 0,
	/* In the futex word: priority inheritance, glibc's robust mutexes. */
	HOLDER_IN_WORD,
	/* glibc's mutex: two words behind. */
	HOLDER_OF_MUTEX,
	/* glibc's rwlock, from the word that says whether readers or a writer have it. */
	HOLDER_OF_PHASE,
	/* glibc's rwlock, from the word that writers wait on. */
	HOLDER_OF_WRITERS,
	/* pthread_join: the thread whose end is awaited. */
	HOLDER_IS_JOINED,
};

/* What the lock looked like when a wait began. */
struct lock_evidence {
	__u32 words[LOCK_WORDS];
	/* Of those; the rest of the page, or all of it, may not be there. */
	__u32 words_read;
	/* What the waiter expected the first one to be. */
	__u32 value;
	__u8 place;
	__u8 pad[7];
};

enum futex_phase {
	/* Not waiting. */
	FUTEX_IDLE = 0,
	FUTEX_BLOCKED,
	/* Made runnable, or preempted inside the call. */
	FUTEX_RUNNABLE,
	/* Back on a CPU, still inside the call. */
	FUTEX_RUNNING,
	/* Between two calls that wait for one lock: gil.bpf.h. */
	FUTEX_PAUSED,
};

/* Things that a thread of a Java virtual machine waits for: java.bpf.h. */
enum java_wait {
	JAVA_UNKNOWN = 0,
	/* A time. */
	JAVA_SLEEP,
	/* Object.notify. */
	JAVA_NOTICE,
	JAVA_MONITOR,
	/* An object that it is parked for. */
	JAVA_BLOCKER,
};

struct futex_wait {
	struct futex_call call;
	/* Begins when the thread leaves its CPU for the first time in this call; for a PI lock, with the call. */
	struct lock_wait wait;
	struct lock_evidence evidence;
	/* When it was made runnable. */
	__u64 runnable_ns;
	/* When it was moved to `requeued_to`; 0: it was not. */
	__u64 requeued_ns;
	__u64 requeued_to;
	/* Time on run queues by then. */
	__u64 queued_before_ns;
	struct outer_wait outer;
	/* A PostgreSQL process's wait event, and its server: backend_state.bpf.h; 0: none. */
	__u32 event;
	__u32 server;
	/* Python's global lock; 0: it is another one. */
	__u64 gil;
	/* The return of the last call that waited for it. */
	__u64 paused_ns;
	/* See struct gils. */
	__u32 gil_tid_at;
	__u32 hole;
	/* The object that a thread of Java waits for, its class, 0: none is known, and its monitor, if that is waited for. */
	__u64 java_class;
	__u64 java_object;
	__u64 java_monitor;
	/* The JavaThread of the one that has it; 0: nobody, or it is not known. */
	__u64 java_owner;
	/* Voluntary switches that were seen, by the kernel's count. */
	__u64 switches_seen;
	__u8 phase;
	/* The call was interrupted in a way that restart_syscall(2) takes up again. */
	__u8 restarts;
	/* enum java_wait */
	__u8 java;
	__u8 pad[5];
};

static __always_inline void begin_futex_wait(struct futex_wait *futex, __u64 now)
{
	__builtin_memset(&futex->wait, 0, sizeof(futex->wait));
	futex->wait.begin_ns = futex->wait.part_ns = now;
	futex->phase = FUTEX_BLOCKED;
	futex->requeued_ns = 0;
	futex->restarts = 0;
	futex->gil = 0;
	futex->java_class = futex->java_object = futex->java_monitor = futex->java_owner = 0;
	futex->java = JAVA_UNKNOWN;
}

/* Looks whether the thread is in a futex call that waits. */
static __always_inline bool is_in_wait(const struct futex_wait *futex)
{
	return futex->phase != FUTEX_IDLE && futex->phase != FUTEX_PAUSED;
}

/* `turn` of struct pause: Python's global lock is waited for on two words, Java's locks on one of each thread's own. */
static __always_inline __u32 futex_turn(const struct futex_wait *futex)
{
	if (futex->java > JAVA_SLEEP)
		return futex->java_monitor ? futex->java_monitor : futex->java_object;
	return futex->gil ? futex->gil : futex->call.address;
}

#endif
