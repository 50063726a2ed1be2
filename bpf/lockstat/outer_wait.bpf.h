/* SPDX-License-Identifier: MIT */
/* outer_wait.bpf.h: how far out in its program a thread waits in calls that wait for work: there it comes back to between all else that
 * it does. A futex that it waits for further in is waited for while it has work.
 *
 * The user's stack pointer says how far out. No stack is walked for it.
 */
#ifndef __OUTER_WAIT_BPF_H__
#define __OUTER_WAIT_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "futex_call.bpf.h"

/* A place that a thread has not come back to for so long is not where it waits for work: it was there when it began. */
#define OUTER_WAIT_KEPT_NS 10000000000ULL

/* Places further apart are not on one stack: a program was replaced by another one, or runs a coroutine's. */
#define STACK_BYTES (8ULL << 20)

struct outer_wait {
	/* Stack pointer of the outermost; 0: none was seen. */
	__u64 sp;
	/* The last time that the thread was there. */
	__u64 seen_ns;
	/* It is there. */
	__u64 is_there;
};

/* Bit n: system call n waits for work, of all that have numbers so low. */
const volatile __u64 calls_for_work[8] = {};

static __always_inline bool waits_for_work(const struct pt_regs *regs)
{
	__u64 number = saved_syscall_number(regs);

	if (number / 64 >= 8 || saved_is_compat(regs))
		return false;
	return calls_for_work[number / 64 & 7] >> number % 64 & 1;
}

/* The thread sleeps, and not for a futex. */
static __always_inline void outer_wait_begins(struct outer_wait *outer, struct task_struct *task, __u64 now)
{
	const struct pt_regs *regs = user_regs_of(task);
	__u64 sp;

	if (!waits_for_work(regs))
		return;
	sp = saved_sp(regs);
	if (sp < outer->sp && now - outer->seen_ns <= OUTER_WAIT_KEPT_NS)
		return;
	outer->sp = sp;
	outer->seen_ns = now;
	outer->is_there = 1;
}

static __always_inline void outer_wait_ends(struct outer_wait *outer)
{
	if (!outer->is_there)
		return;
	outer->is_there = 0;
	outer->seen_ns = bpf_ktime_get_ns();
}

/* Stack pointer at which the thread waits for work when it has none, as far as known at `now`, where its own is `sp`; 0: nobody
 * knows.
 */
static __always_inline __u64 outer_sp(const struct outer_wait *outer, __u64 now, __u64 sp)
{
	if (outer->seen_ns + OUTER_WAIT_KEPT_NS < now || outer->sp - sp > STACK_BYTES)
		return 0;
	return outer->sp;
}

#endif
