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
#include "futex_state.bpf.h"
#include "lock_holders.bpf.h"

/* kfunc of 6.14; without it, or bpf_task_from_pid, nobody vouches for a number in memory, and there is no holder. It stands for
 * bc638d8cb5be (6.12), too, since which programs of classic tracepoints may call kfuncs.
 */
struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;

#define FUTEX_TID_MASK 0x3fffffff
#define FUTEX_WAITERS 0x80000000

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

/* Whether the numbers of one are the other's: a thread writes down its ID as it knows it itself. */
static __always_inline bool counts_like(struct task_struct *task, struct task_struct *waiter)
{
	return BPF_CORE_READ(task, thread_pid, level) == BPF_CORE_READ(waiter, thread_pid, level);
}

/* Takes `vpid` for the holder if such a thread lives and can hold the lock: a private one's is in the same process. A shared one's
 * may have meant another thread, of another namespace: see is_sure(). Only a process's own threads can be joined; any other number is
 * somebody's counter.
 */
static __always_inline bool accept_holder(const struct futex_call *call, struct task_struct *waiter, __u32 vpid,
					  enum holder_place place, struct lock_holder *holder)
{
	struct task_struct *task;
	bool sound;

	if (!vpid || vpid & ~FUTEX_TID_MASK)
		return false;
	task = task_of_vpid(waiter, vpid);
	if (!task)
		return false;
	sound = task->tgid == waiter->tgid || (place != HOLDER_IS_JOINED && call->flags & FUTEX_IS_SHARED &&
					       counts_like(task, waiter));
	if (sound)
		note_holder(holder, task, HOLDER_OWNER, config.holder_stacks);
	bpf_task_release(task);
	return sound;
}

/* glibc's `__kind`: the type in two bits, robust, inheriting, protected, process-shared, elision yes or no. */
#define MUTEX_KIND_BITS 0x3f3
#define MUTEX_ROBUST 0x10

/* Preferred side, shared, elision: bytes of i386's rwlock. */
#define RWLOCK_FLAG_BITS 0x00ff0103

/* A locked glibc mutex has users, fewer than the machine has threads, and a kind that exists. */
static __always_inline bool is_like_mutex(const struct lock_evidence *evidence, bool compat)
{
	__u32 users = evidence->words[compat ? 4 : 3], kind = evidence->words[compat ? 3 : 4];

	return users && users <= 1 << 22 && !(kind & ~MUTEX_KIND_BITS);
}

/* glibc's robust mutex has its owner's ID twice, and says that it is one. With that bit musl has errors and counts in the word. */
static __always_inline bool is_like_robust(const struct lock_evidence *evidence, bool compat)
{
	return evidence->words_read == LOCK_WORDS && evidence->words[compat ? 3 : 4] & MUTEX_ROBUST &&
	       evidence->words[2] == (evidence->words[0] & FUTEX_TID_MASK);
}

/* Where the owner's ID would be, given how the lock is waited for; 0 if nowhere. */
static __always_inline __u32 owner_id(const struct futex_call *call, struct lock_evidence *evidence)
{
	/* i386 has `kind` and `nusers` the other way round, and a word more in front of a rwlock's writer. */
	bool compat = call->flags & FUTEX_IS_COMPAT;
	__u32 word = evidence->words[0];
	bool at_phase;

	if (is_pi_wait(call) || (call->value & FUTEX_WAITERS && is_like_robust(evidence, compat))) {
		evidence->place = HOLDER_IN_WORD;
		return word & FUTEX_TID_MASK;
	}
	if (call->value & FUTEX_WAITERS)
		return 0;
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
	/* Such a lock begins at a multiple of 8, but in 32-bit programs at any word: there flags stand before who has it. */
	at_phase = compat ? evidence->words[5] && !(evidence->words[4] & ~RWLOCK_FLAG_BITS) : !(call->address & 7);
	evidence->place = at_phase ? HOLDER_OF_PHASE : HOLDER_OF_WRITERS;
	if (at_phase)
		return evidence->words[compat ? 5 : 4];
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
	if (!accept_holder(call, waiter, vpid, evidence->place, holder))
		evidence->place = HOLDER_NOWHERE;
}

#endif
