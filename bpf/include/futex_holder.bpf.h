/* SPDX-License-Identifier: MIT */
/* futex_holder.bpf.h: who may hold the lock behind a futex, read from the lock itself as a thread goes to sleep on it.
 *
 * A futex is a number to the kernel; what it means is up to the library. Here the places where glibc, musl and the PI
 * protocol keep an owner are tried, and what is found counts only if it is a living thread that could hold this lock.
 * User space judges, with the words themselves and the waiter's stack at hand, whether the futex is such a lock at all.
 */
#ifndef __FUTEX_HOLDER_BPF_H__
#define __FUTEX_HOLDER_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "futex_call.bpf.h"
#include "ids.bpf.h"
#include "lock_tables.bpf.h"

/* kfuncs of 6.14, 6.2 and 6.2; without them nobody vouches for a number in memory, and there is no holder. */
struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *task) __ksym __weak;

/* The futex word and what follows it. */
#define LOCK_WORDS 8
#define FUTEX_TID_MASK 0x3fffffff
#define FUTEX_WAITERS 0x80000000

/* Where a holder's ID was found. */
enum holder_place {
	HOLDER_NOWHERE = 0,
	/* In the futex word: priority inheritance, robust mutexes, musl. */
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

static __always_inline void read_words(const struct futex_call *call, struct lock_evidence *evidence)
{
	if (!bpf_probe_read_user(evidence->words, sizeof(evidence->words), (void *)call->address)) {
		evidence->words_read = LOCK_WORDS;
		return;
	}
	__builtin_memset(evidence->words, 0, sizeof(evidence->words));
	if (!bpf_probe_read_user(evidence->words, sizeof(__u32), (void *)call->address))
		evidence->words_read = 1;
}

static __always_inline void describe_holder(struct task_struct *task, struct lock_holder *holder)
{
	holder->kind = HOLDER_OWNER;
	holder->tid = tid_of(targets.pid_namespace, task);
	holder->tgid = tgid_of(targets.pid_namespace, task);
	holder->pid = BPF_CORE_READ(task, pid);
	bpf_core_read(&holder->comm, sizeof(holder->comm), &task->comm);
	if (is_on_cpu(task))
		holder->state = HOLDER_ON_CPU;
	else
		holder->state = is_queued(task) ? HOLDER_RUNNABLE : HOLDER_BLOCKED;
}

/* The thread of that ID in the waiter's PID namespace, to be released. The waiter is current. */
static __always_inline struct task_struct *task_of_vpid(struct task_struct *waiter, __u32 vpid)
{
	if (bpf_ksym_exists(bpf_task_from_vpid))
		return bpf_task_from_vpid(vpid);
	/* Before 6.14 only the initial namespace's numbers lead to tasks. */
	if (bpf_ksym_exists(bpf_task_from_pid) && !BPF_CORE_READ(waiter, thread_pid, level))
		return bpf_task_from_pid(vpid);
	return NULL;
}

/* Takes `vpid` for the holder if such a thread lives and can hold the lock: a private one's is in the same process. */
static __always_inline bool accept_holder(const struct futex_call *call, struct task_struct *waiter, __u32 vpid,
					  struct lock_holder *holder)
{
	struct task_struct *task;
	bool sound;

	if (!vpid || vpid & ~FUTEX_TID_MASK)
		return false;
	task = task_of_vpid(waiter, vpid);
	if (!task)
		return false;
	sound = call->flags & FUTEX_IS_SHARED || task->tgid == waiter->tgid;
	if (sound)
		describe_holder(task, holder);
	bpf_task_release(task);
	return sound;
}

/* glibc's `__kind`: the type in two bits, robust, inheriting, protected, process-shared, elision yes or no. */
#define MUTEX_KIND_BITS 0x3f3

/* A locked glibc mutex has users, fewer than the machine has threads, and a kind that exists. */
static __always_inline bool is_like_mutex(const struct lock_evidence *evidence, bool compat)
{
	__u32 users = evidence->words[compat ? 4 : 3], kind = evidence->words[compat ? 3 : 4];

	return users && users <= 1 << 22 && !(kind & ~MUTEX_KIND_BITS);
}

/* Where the owner's ID would be, given how the lock is waited for; 0 if nowhere. */
static __always_inline __u32 owner_id(const struct futex_call *call, struct lock_evidence *evidence)
{
	/* i386 has `kind` and `nusers` the other way round, and a word more in front of a rwlock's writer. */
	bool compat = call->flags & FUTEX_IS_COMPAT;
	__u32 word = evidence->words[0];

	if (call->operation == FUTEX_LOCK_PI || call->operation == FUTEX_LOCK_PI2 || call->value & FUTEX_WAITERS) {
		evidence->place = HOLDER_IN_WORD;
		return word & FUTEX_TID_MASK;
	}
	if (call->flags & FUTEX_IS_SHARED && call->value == word && word > 3) {
		evidence->place = HOLDER_IS_JOINED;
		return word;
	}
	if (evidence->words_read < LOCK_WORDS)
		return 0;
	if (call->value == 2 && is_like_mutex(evidence, compat)) {
		evidence->place = HOLDER_OF_MUTEX;
		return evidence->words[2];
	}
	if (call->value != 3)
		return 0;
	evidence->place = HOLDER_OF_PHASE;
	if (evidence->words[compat ? 5 : 4])
		return evidence->words[compat ? 5 : 4];
	evidence->place = HOLDER_OF_WRITERS;
	return evidence->words[compat ? 4 : 3];
}

/* Called when the waiter, which is current, leaves its CPU: the lock says now what it is waiting for. */
static __always_inline void find_holder(const struct futex_call *call, struct task_struct *waiter,
					struct lock_evidence *evidence, struct lock_holder *holder)
{
	__u32 vpid;

	__builtin_memset(evidence, 0, sizeof(*evidence));
	__builtin_memset(holder, 0, sizeof(*holder));
	evidence->value = call->value;
	read_words(call, evidence);
	if (!evidence->words_read || call->operation >= FUTEX2_WAITV)
		return;
	vpid = owner_id(call, evidence);
	if (!accept_holder(call, waiter, vpid, holder))
		evidence->place = HOLDER_NOWHERE;
}

#endif
