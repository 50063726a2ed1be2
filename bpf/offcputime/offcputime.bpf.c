/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime: how long threads are off the CPU, split into blocked and runnable, by stack and by what they waited for.
 *
 * Every target is in one phase at any time: running → blocked → runnable → running. sched_switch and sched_wakeup move
 * it on, and each phase's length is added up, so that a thread's phases sum to its time inside the window.
 *
 * Stacks are taken when the thread is back on a CPU and the interval's length is known: what is too short to report
 * costs no walk. A thread's stacks do not change while it is off the CPU. The kernel stack is recognised or walked at
 * switch-in (kernel_stack_cache.bpf.h); the user stack in the thread's own context at the end of __schedule()
 * (sched_exit_tp, Linux 6.18), with the run-queue lock dropped. Older kernels have no such place: there the user stack is
 * walked at switch-out, where the thread is current.
 *
 * bpf_task_work (Linux 6.18) was tried for it: its callback may fault pages in. To schedule one from a switch takes 6.3 us of
 * the program and 14 us of the thread (an allocation and an interrupt to itself), several walks' worth, and what the
 * callback takes is not in the BPF time that the kernel measures.
 *
 * Not seen: a first wait for a CPU has no user stack (the thread has not run yet). Its kernel stack is ret_from_fork.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "left_out.bpf.h"
#include "offcpu_config.bpf.h"
#include "offcpu_phases.bpf.h"
#include "offcpu_late.bpf.h"
#include "offcpu_marks.bpf.h"
#include "offcpu_rows.bpf.h"
#include "offcpu_open.bpf.h"
#include "switches.bpf.h"
#include "wakers.bpf.h"

/* Of a resumed thread, which is current. */
static __always_inline __u64 own_user_stack(struct member *member, struct task_struct *task, struct stack_scratch *scratch)
{
	if (config.stacks.no_user)
		return 0;
	if (stacks_from_ns && has_user_stack(task) && goes_without_stack(member->ended_off_ns))
		return STACK_LEFT_OUT;
	return user_stack(SCRATCH_SWITCH, scratch, task, tgid_of(targets.pid_namespace, task));
}

/* Where the resumed thread cannot walk its stack, it does so before it leaves. */
static __always_inline void keep_user_stack(struct member *member, struct task_struct *task)
{
	struct stack_scratch *scratch = scratch_at(SCRATCH_SWITCH);

	if (!scratch)
		return;
	member->user_stack = user_stack(SCRATCH_SWITCH, scratch, task, tgid_of(targets.pid_namespace, task));
	member->walked = 1 + switches_of(task);
}

/* Closes its interval, with its own stacks: here, or where sched_exit walks. */
static __always_inline void report_resumed(struct member *member, struct task_struct *task)
{
	bool is_new = !switches_of(task);

	member->kernel_stack = resumed_kernel_stack(task);
	/* A new thread starts in ret_from_fork, not in __schedule: sched_exit_tp will not see it. */
	if (is_new)
		report(member, task, member->kernel_stack, 0);
	else if (!walks_on_exit())
		report(member, task, member->kernel_stack, member->user_stack);
}

static __always_inline void switched_late(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state,
					  struct offcputime_totals *sums)
{
	struct member *member;

	if (!takes_late) {
		settle_late(prev, PHASE_RUNNING);
		settle_late(next, PHASE_RUNNABLE);
		runs_on(next);
		return;
	}
	member = late_member_of(prev);
	if (member)
		left_late(member, prev, !preempt && (state & TASK_DEAD), sums);
	member = late_member_of(next);
	if (member && runs_late(member, sums))
		report_resumed(member, next);
}

static __always_inline void task_switched(bool preempt, struct task_struct *prev, struct task_struct *next,
					  __u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct offcputime_totals *sums = totals_here();
	bool counts = in_window(now);
	struct member *member;

	if (!sums)
		return;
	if (!counts && is_late(now)) {
		switched_late(preempt, prev, next, state, sums);
		return;
	}
	if (!counts && !walk_on_leaving)
		return;
	member = member_of(prev);
	if (member &&
	    (counts ? switched_out(member, prev, preempt, state, now, sums) :
		      leaves_before(member, prev, preempt, state)) &&
	    !walks_on_exit() && !config.stacks.no_user)
		keep_user_stack(member, prev);
	if (!counts)
		return;
	member = member_of(next);
	if (member && switched_in(member, now, sums))
		report_resumed(member, next);
}

static __always_inline void made_runnable(struct task_struct *task)
{
	struct offcputime_totals *sums = totals_here();
	__u64 now = bpf_ktime_get_ns();
	struct member *member;

	if (!sums)
		return;
	if (in_window(now)) {
		made_runnable_in_window(task, now, sums);
	} else if (is_late(now) && takes_late) {
		member = late_member_of(task);
		if (member)
			made_runnable_late(member, task, sums);
	} else if (is_late(now)) {
		settle_late(task, is_on_cpu(task) ? PHASE_RUNNING : PHASE_BLOCKED);
	}
}

#include "wakeups.bpf.h"

ON_SCHED_SWITCH(task_switched(preempt, prev, next, prev_state))

/* The switch-in was hidden from us, but the task itself is not: close its interval here, some 100 ns late. */
static __always_inline bool resumed_unseen(void *ctx, struct member *member, struct stack_scratch *scratch)
{
	__u64 now = bpf_ktime_get_ns();
	struct offcputime_totals *sums = totals_here();

	if (member->phase != PHASE_BLOCKED && member->phase != PHASE_RUNNABLE)
		return false;
	if (!sums || !in_window(now) || !switched_in(member, now, sums))
		return false;
	member->kernel_stack = config.stacks.no_kernel ? 0 : kernel_stack(ctx, SCRATCH_SWITCH, scratch);
	return true;
}

SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct task_struct *task = current_task();
	struct stack_scratch *scratch;
	struct member *member;

	if (!is_switch)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	scratch = scratch_at(SCRATCH_SWITCH);
	if (!scratch)
		return 0;
	if (!member->ended_off_ns && !resumed_unseen(ctx, member, scratch))
		return 0;
	report(member, task, member->kernel_stack, own_user_stack(member, task, scratch));
	return 0;
}

/* Runs in the waker's context, before the wakeup itself: the last one before the task runs is the one that counts. */
SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct stack_scratch *scratch = scratch_at(SCRATCH_WAKER);
	struct member *member = member_of(task);

	if (scratch && member && in_window(bpf_ktime_get_ns()))
		member->waker = waker_record(ctx, SCRATCH_WAKER, scratch, &config.stacks);
	return 0;
}

/* At the functions that were asked for, or at their return. */
SEC("?uprobe")
int work_begins(struct pt_regs *ctx)
{
	tell_mark(ctx, false);
	return 0;
}

SEC("?uprobe")
int work_ends(struct pt_regs *ctx)
{
	tell_mark(ctx, true);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
