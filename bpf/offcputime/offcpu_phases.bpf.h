/* SPDX-License-Identifier: MIT */
/* offcpu_phases.bpf.h: the phases of a target's time: running → blocked → runnable → running.
 *
 * Each phase's length is added up, so that a thread's phases sum to its time inside the window; an interval off the CPU is
 * closed at switch-in. What becomes of closed intervals is the business of offcpu_rows.bpf.h.
 */
#ifndef __OFFCPU_PHASES_BPF_H__
#define __OFFCPU_PHASES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "waits.bpf.h"

enum phase {
	/* A target since before the window, no event yet: its first event tells what it has been doing. */
	PHASE_UNKNOWN = 0,
	PHASE_RUNNING,
	PHASE_BLOCKED,
	PHASE_RUNNABLE,
	PHASE_DEAD,
};

/* Per task: what a target is doing. */
struct member {
	__u64 joined_ns;
	/* Sums of its phases since then: */
	__u64 oncpu_ns;
	__u64 unseen_ns;
	/* Its waits without a row. */
	__u64 lost_ns;
	/* When the present phase began. */
	__u64 since_ns;
	/* When it left the CPU. */
	__u64 off_ns;
	/* When it became runnable after that. */
	__u64 runnable_ns;
	/* The interval that has just ended, not yet reported; 0: none. */
	__u64 ended_off_ns;
	__u64 ended_runqueue_ns;
	/* Interned stacks: the waker's record; without sched_exit_tp also the own user stack. */
	__u64 waker;
	__u64 user_stack;
	/* Of the interval that has just ended. */
	__u64 kernel_stack;
	/* 1 + its switches when user space was last told of its open wait, and when it last walked its stack before it left. */
	__u64 described;
	__u64 walked;
	/* The same of when `polled` was learnt. */
	__u64 polled_by;
	/* The end of the window after which it has run, where late events close nothing; and of its wait until then: */
	__u64 ran_after_ns;
	struct wait_call late_call;
	/* Stack pointer of the call that is its piece of work, where calls of a function are, 0: it is in none; and whose memory that is. */
	__u64 work_sp;
	__u64 work_memory;
	/* Counts the times that it has left its CPU, those where it is found to have been away, too. */
	__u32 waits;
	/* Counts the calls and returns by which it has begun or ended work (offcpu_marks.bpf.h). */
	__u32 marks;
	/* The poll in which it was seen to leave its CPU. */
	__u32 polled;
	__u32 state;
	__u8 phase;
	__u8 wait_flags;
	/* The interval to be reported was open at the window's end. */
	__u8 is_open;
	/* User space had been told of that late wait; it was for its first CPU. */
	__u8 was_told;
	__u8 was_new;
};

#include "maps.bpf.h"
#include "members.bpf.h"
#include "offcpu_config.bpf.h"
#include "offcpu_endpoints.bpf.h"
#include "offcpu_epolls.bpf.h"
#include "offcpu_polls.bpf.h"

/* Where the targets' time inside the window went, whether reported or filtered. */
struct offcputime_totals {
	__u64 oncpu_ns;
	__u64 runqueue_ns;
	__u64 blocked_ns;
	/* Of which nothing is known: the switch that began or ended it did not reach us. */
	__u64 unseen_ns;
	/* Sum of the targets' time in the window, counted when they exit. */
	__u64 lifetime_ns;
	__u64 threads_exited;
	/* Switches and wakeups of targets. */
	__u64 events;
	/* Intervals too short, too long or in the wrong state. */
	__u64 filtered;
	__u64 filtered_ns;
	/* Rows that were made here. */
	__u64 rows;
};

struct offcputime_losses {
	__u64 rows_full;
	__u64 rows_full_ns;
	/* Intervals whose stack could not be walked in time, or whose thread is no target any more. */
	__u64 unreported;
	__u64 unreported_ns;
	/* A switch-in without the wakeup before it, or a switch-out of a thread that was not running. */
	__u64 out_of_order;
	/* A clock that went backwards. */
	__u64 negative;
	/* Threads that ended, of processes that found no room. */
	__u64 processes_full;
	/* Waits whose length found no room. */
	__u64 lengths_full;
};

struct offcputime_losses losses = {};

PER_CPU(totals, struct offcputime_totals);

static __always_inline struct offcputime_totals *totals_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

static __always_inline __u64 elapsed(__u64 from, __u64 to)
{
	if (to >= from)
		return to - from;
	__sync_fetch_and_add(&losses.negative, 1);
	return 0;
}

#include "offcpu_processes.bpf.h"

static __always_inline enum phase phase_now(struct task_struct *task)
{
	if (is_on_cpu(task))
		return PHASE_RUNNING;
	return is_queued(task) ? PHASE_RUNNABLE : PHASE_BLOCKED;
}

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	__u64 now = bpf_ktime_get_ns();

	member->joined_ns = member->since_ns = member->off_ns = member->runnable_ns = now;
	member->oncpu_ns = member->unseen_ns = member->lost_ns = 0;
	/* No call of a kernel thread is to be looked for, its first wait's included. */
	member->wait_flags = BPF_CORE_READ(task, flags) & PF_KTHREAD ? WAIT_KERNEL_THREAD : 0;
	if (origin == MEMBER_FORKED) {
		/* Until it is put on a run queue; from then on it waits for nothing but a CPU. */
		member->phase = PHASE_BLOCKED;
		member->wait_flags |= WAIT_RUNNABLE;
	} else if (origin == MEMBER_RENAMED) {
		member->phase = phase_now(task);
	}
}

/* Nothing that happened before the window is known: its first event in it tells what a task had been doing. */
static __always_inline bool is_unsettled(struct member *member)
{
	return member->phase == PHASE_UNKNOWN || member->joined_ns < window_start_ns;
}

/* Starts at the window's edge, in the phase that the first event implies. Whoever is runnable there waits for nothing but a CPU in
 * the window: what it had waited for before has ended.
 */
static __always_inline void settle(struct member *member, enum phase implied)
{
	if (!is_unsettled(member))
		return;
	if (member->joined_ns < window_start_ns) {
		member->joined_ns = member->since_ns = member->off_ns = member->runnable_ns = window_start_ns;
		member->oncpu_ns = member->unseen_ns = member->lost_ns = 0;
	}
	if (implied == PHASE_RUNNABLE)
		member->wait_flags = WAIT_RUNNABLE | (member->wait_flags & (WAIT_KERNEL_THREAD | WAIT_THROTTLED));
	else
		member->wait_flags &= ~WAIT_RUNNABLE;
	member->phase = implied;
}

/* True if user space knows the stacks of the wait that the task is in, or comes from. */
static __always_inline bool is_told(const struct member *member, struct task_struct *task)
{
	return member->described == 1 + switches_of(task);
}

/* True if the user stack that is kept is of the wait that the task is in, or comes from: the last time that it left was seen. */
static __always_inline bool has_kept_stack(const struct member *member, struct task_struct *task)
{
	return member->walked == 1 + switches_of(task);
}

/* The poll that the task is in, or comes from: then it `is_over`. */
static __always_inline __u32 polled_of(const struct member *member, struct task_struct *task, bool is_over)
{
	__u32 polled;

	if (member->wait_flags & WAIT_RUNNABLE)
		return 0;
	if (member->polled_by == 1 + switches_of(task))
		polled = member->polled;
	else
		polled = task == current_task() ? polled_now(task) : polled_then(task);
	/* It may sleep for the lock of what it epolls. */
	return polled || member->wait_flags & WAIT_KERNEL_LOCK ? polled : epolled_by(task, member->off_ns, is_over);
}

/* The system call that the task waits in, or comes from: then the wait `is_over`. */
static __always_inline struct wait_call call_of(const struct member *member, struct task_struct *task, bool is_over)
{
	struct wait_call call = { .syscall = NO_SYSCALL };
	__u32 polled;

	if (member->wait_flags & WAIT_KERNEL_THREAD)
		return call;
	polled = polled_of(member, task, is_over);
	call = native_call_of(task, polled);
	if (config.details && !(member->wait_flags & WAIT_RUNNABLE))
		call.endpoint = endpoint_of(task, &call, polled, member->wait_flags & WAIT_BLOCK_IO);
	return call;
}

/* At switch-out, from the task that leaves. */
static __always_inline void describe_leaving(struct member *member, struct task_struct *task, bool preempt, __u32 state)
{
	member->state = state;
	member->wait_flags = wait_flags_of(task, preempt, state);
	member->polled = member->wait_flags & (WAIT_RUNNABLE | WAIT_KERNEL_THREAD) ? 0 : polled_now(task);
	member->polled_by = 1 + switches_of(task);
}

/* The first event after the window's end tells of a target without any in it, too. */
static __always_inline void settle_late(struct task_struct *task, enum phase implied)
{
	struct member *member = member_of(task);

	if (member)
		settle(member, implied);
}

static __always_inline void count_unreported(struct member *member, __u64 off_ns)
{
	member->lost_ns += off_ns;
	__sync_fetch_and_add(&losses.unreported, 1);
	__sync_fetch_and_add(&losses.unreported_ns, off_ns);
}

/* It stops being a target while it lives: the wait that it may be in will not be seen to end. */
static __always_inline void member_left(struct member *member, struct task_struct *task)
{
	struct offcputime_totals *sums = totals_here();
	__u64 now = bpf_ktime_get_ns();

	if (takes_late && is_late(now))
		now = window_end_ns;
	else if (!in_window(now))
		return;
	if (!sums || member->joined_ns >= now || member->phase == PHASE_DEAD)
		return;
	settle(member, phase_now(task));
	if (member->phase == PHASE_RUNNING)
		add_oncpu(member, elapsed(member->since_ns, now), sums);
	else if (member->phase == PHASE_RUNNABLE)
		sums->runqueue_ns += elapsed(member->since_ns, now);
	else
		sums->blocked_ns += elapsed(member->since_ns, now);
	if (member->phase != PHASE_RUNNING)
		count_unreported(member, elapsed(member->off_ns, now));
	end_lifetime(member, task, now, sums);
}

/* Kernels that shield some tasks (a sandbox's own) run no BPF program while those are current: switches between them and
 * targets are invisible.
 */
static __always_inline void count_unseen(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	__u64 unseen_ns = elapsed(member->since_ns, now);

	__sync_fetch_and_add(&losses.out_of_order, 1);
	sums->unseen_ns += unseen_ns;
	member->waits++;
	member->unseen_ns += unseen_ns;
}

/* Returns whether an interval off the CPU begins. */
static __always_inline bool switched_out(struct member *member, struct task_struct *task, bool preempt, __u32 state,
					 __u64 now, struct offcputime_totals *sums)
{
	settle(member, PHASE_RUNNING);
	sums->events++;
	if (member->phase == PHASE_RUNNING)
		add_oncpu(member, elapsed(member->since_ns, now), sums);
	else
		count_unseen(member, now, sums);
	member->waits++;
	member->since_ns = member->off_ns = member->runnable_ns = now;
	/* Threads that run are woken, too. */
	member->waker = 0;
	if (member->ended_off_ns) {
		count_unreported(member, member->ended_off_ns);
		member->ended_off_ns = 0;
	}
	if (!preempt && (state & TASK_DEAD)) {
		member->phase = PHASE_DEAD;
		sums->threads_exited++;
		end_lifetime(member, task, now, sums);
		return false;
	}
	describe_leaving(member, task, preempt, state);
	member->phase = member->wait_flags & WAIT_RUNNABLE ? PHASE_RUNNABLE : PHASE_BLOCKED;
	return true;
}

/* A wait may begin before a window of several, once the programs are attached. Returns whether one does. */
static __always_inline bool leaves_before(struct member *member, struct task_struct *task, bool preempt, __u32 state)
{
	if (!preempt && (state & TASK_DEAD))
		return false;
	member->ended_off_ns = member->waker = 0;
	describe_leaving(member, task, preempt, state);
	return true;
}

static __always_inline void end_blocking(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	sums->blocked_ns += elapsed(member->since_ns, now);
	member->since_ns = member->runnable_ns = now;
	member->phase = PHASE_RUNNABLE;
}

static __always_inline void made_runnable_in_window(struct task_struct *task, __u64 now, struct offcputime_totals *sums)
{
	struct member *member = member_of(task);

	if (!member)
		return;
	/* Wakeups also reach tasks that are on a CPU or were preempted half-way to sleep: nothing changes for those. */
	if (is_unsettled(member))
		settle(member, is_on_cpu(task) ? PHASE_RUNNING : PHASE_BLOCKED);
	sums->events++;
	if (member->phase == PHASE_BLOCKED)
		end_blocking(member, now, sums);
}

static __always_inline bool is_wanted_state(struct member *member)
{
	__u32 mask = config.state_mask;

	if (mask == STATE_ANY)
		return true;
	if (member->wait_flags & WAIT_RUNNABLE)
		return mask == 0;
	/* States are composite: TASK_KILLABLE is 0x102, and TASK_FREEZABLE, 0x2000, may come on top. */
	return member->state & mask;
}

/* Closes the interval of a thread that is off its CPU; returns whether it is to be reported. */
static __always_inline bool close_interval(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	__u64 off_ns;

	if (member->phase == PHASE_BLOCKED) {
		__sync_fetch_and_add(&losses.out_of_order, 1);
		sums->blocked_ns += elapsed(member->since_ns, now);
		member->runnable_ns = now;
	} else {
		sums->runqueue_ns += elapsed(member->since_ns, now);
	}
	member->phase = PHASE_RUNNING;
	member->since_ns = now;
	off_ns = elapsed(member->off_ns, now);
	if (off_ns < config.min_ns || off_ns > config.max_ns || !is_wanted_state(member)) {
		sums->filtered++;
		sums->filtered_ns += off_ns;
		return false;
	}
	member->ended_off_ns = off_ns;
	member->ended_runqueue_ns = elapsed(member->runnable_ns, now);
	return true;
}

/* Closes the interval; returns whether it is to be reported. */
static __always_inline bool switched_in(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	settle(member, PHASE_RUNNABLE);
	member->is_open = 0;
	sums->events++;
	if (member->phase == PHASE_BLOCKED || member->phase == PHASE_RUNNABLE)
		return close_interval(member, now, sums);
	count_unseen(member, now, sums);
	member->since_ns = now;
	return false;
}

#endif
