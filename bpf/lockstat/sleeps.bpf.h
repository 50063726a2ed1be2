/* SPDX-License-Identifier: MIT */
/* sleeps.bpf.h: waits that begin when a thread leaves its CPU and end when it is back: PostgreSQL's wait events, and tokens. */
#ifndef __SLEEPS_BPF_H__
#define __SLEEPS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "backend_waits.bpf.h"
#include "futex_open.bpf.h"
#include "futex_wakeups.bpf.h"
#include "lock_counts.bpf.h"
#include "lock_holders.bpf.h"
#include "sleep_state.bpf.h"
#include "stacks.bpf.h"
#include "tokens.bpf.h"
#include "wakers.bpf.h"

struct sleep_losses {
	/* No scratch for the stack. */
	__u64 unwalked;
	/* Its thread was not seen to get a CPU: what it counts is the wait up to the wakeup, or nothing. */
	__u64 unended;
};

struct sleep_losses sleep_losses = {};

/* Waits that ended, for the closing line. */
__u64 sleep_events = 0;

/* Its thread has no work, and is of no interest. */
static __always_inline bool is_idle(const struct sleep *sleep)
{
	return sleep->wait.lock.class == LOCK_OF_SERVER && is_idle_event(sleep->wait.lock.address);
}

static __always_inline void walk_before_sleep(struct member *member, struct task_struct *task)
{
	struct lock_wait *wait = &member->sleep.wait;
	struct stack_scratch *scratch;
	__u32 slot;

	if (leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&sleep_losses.unwalked, 1);
		return;
	}
	scratch->unwind.outer_sp = outer_sp(&member->futex.outer, wait->begin_ns, saved_sp(user_regs_of(task)));
	wait->user_stack = user_stack(slot, scratch, task, tgid_of(targets.pid_namespace, task));
	wait->inside = scratch->unwind.inside;
	scratch->unwind.outer_sp = 0;
	release_scratch(scratch);
}

/* A target waits for something from now on, if it is an event of PostgreSQL's or a token; else, or if it has no work, its place is noted
 * as one where it waits for that. `may_be_token`: a signal would end its sleep.
 */
static __always_inline void sleep_for(struct member *member, struct task_struct *task, __u32 event, bool may_be_token, bool is_current)
{
	struct sleep *sleep = &member->sleep;
	__u64 now = bpf_ktime_get_ns();
	struct lock_id lock;

	if (has_ended(now))
		return;
	/* The kernel's own word on its locks comes first. */
	if (!member->kernel.depth && event) {
		begin_event_wait(sleep, &member->backend, event, now);
	} else if (!member->kernel.depth && may_be_token && token_of(&lock, task, is_current)) {
		begin_sleep(sleep, now);
		sleep->wait.lock = lock;
	}
	if (may_be_token && (sleep->phase == FUTEX_IDLE || is_idle(sleep)))
		outer_wait_begins(&member->futex.outer, task, now);
}

/* Its thread leaves its CPU, and was not seen to get one. The wait was over when it was woken. */
static __always_inline void close_unended(struct sleep *sleep, struct task_struct *task)
{
	if (sleep->phase == FUTEX_IDLE)
		return;
	/* Losses before the window are of no account. */
	if (window_start_ns && !is_idle(sleep)) {
		__sync_fetch_and_add(&sleep_losses.unended, 1);
		if (sleep->phase == FUTEX_RUNNABLE) {
			count_ended_wait(&sleep->wait, task, sleep->runnable_ns);
			__sync_fetch_and_add(&sleep_events, 1);
		}
	}
	sleep->phase = FUTEX_IDLE;
}

/* A target, which is current, sleeps; `event`: what a PostgreSQL process sleeps for. If that is a futex, the event is its. */
static __always_inline void sleep_begins(struct member *member, struct task_struct *task, __u32 event, __u32 state)
{
	if (member->futex.phase != FUTEX_IDLE)
		return;
	sleep_for(member, task, event, state & TASK_INTERRUPTIBLE && !(task->flags & PF_KTHREAD), true);
	if (member->sleep.phase != FUTEX_IDLE && !is_idle(&member->sleep))
		walk_before_sleep(member, task);
}

/* A task that is found by the iterator. */
static __always_inline void sleep_found(struct member *member, struct task_struct *task, __u32 event)
{
	if (member->futex.phase != FUTEX_IDLE || BPF_CORE_READ(task, flags) & PF_KTHREAD || is_on_cpu(task) || is_queued(task))
		return;
	sleep_for(member, task, event, true, false);
	/* It ran meanwhile: this may be over. */
	if (is_on_cpu(task) || BPF_CORE_READ(task, nvcsw) != member->futex.switches_seen)
		member->sleep.phase = FUTEX_IDLE;
}

/* True where the task that is current gives what was waited for, and is not just hit by the interrupt that ends the wait. */
static __always_inline bool is_given(const struct member *member)
{
	const struct lock_id *lock = &member->sleep.wait.lock;

	if (lock->class != LOCK_OF_SERVER)
		return gives_token();
	return has_releaser(lock->address) && is_latch_set(&member->backend);
}

/* Runs in the waker's context. */
static __always_inline void sleep_is_woken(void *ctx, struct member *member)
{
	struct sleep *sleep = &member->sleep;
	struct stack_scratch *scratch;
	__u64 now;
	__u32 slot;

	if (sleep->phase != FUTEX_BLOCKED)
		return;
	now = bpf_ktime_get_ns();
	if (has_ended(now))
		return;
	sleep->phase = FUTEX_RUNNABLE;
	sleep->runnable_ns = now;
	if (!is_given(member))
		return;
	note_holder(&sleep->wait.holder, current_task(), HOLDER_WAKER, false);
	note_meanwhile(&sleep->wait, sleep_turn(sleep), now);
	if ((config.releasers.no_user && config.releasers.no_kernel) || leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&sleep_losses.unwalked, 1);
		return;
	}
	sleep->wait.waker = waker_record(ctx, slot, scratch, &config.releasers);
	release_scratch(scratch);
}

static __always_inline void end_sleepers_queue(struct sleep *sleep, __u64 now)
{
	/* An interval's edge may lie before the wakeup. */
	if (sleep->phase != FUTEX_RUNNABLE || sleep->runnable_ns >= now)
		return;
	add_run_queue(&sleep->wait, sleep->runnable_ns, before_end(now));
	sleep->runnable_ns = now;
}

static __always_inline void sleep_ends(struct sleep *sleep, struct task_struct *task)
{
	__u64 now;

	if (sleep->phase == FUTEX_IDLE)
		return;
	now = bpf_ktime_get_ns();
	end_sleepers_queue(sleep, now);
	/* From here on an edge is looked after here, and the iterator leaves it alone. */
	sleep->phase = FUTEX_IDLE;
	count_ended_wait(&sleep->wait, task, now);
	if (!is_idle(sleep))
		__sync_fetch_and_add(&sleep_events, 1);
}

/* From the closing iterator. A wait that was under way when tracing began has no stack yet. */
static __always_inline void count_open_sleep(struct member *member, struct task_struct *task, struct seq_file *seq)
{
	struct sleep *sleep = &member->sleep;

	if (sleep->phase == FUTEX_IDLE || sleep->wait.begin_ns >= edge_ns)
		return;
	end_sleepers_queue(sleep, edge_ns);
	count_open_wait(&sleep->wait, task);
	if (!sleep->wait.user_stack && !is_idle(sleep))
		hand_over_registers(&sleep->wait, &member->futex.outer, task, seq);
}

#endif
