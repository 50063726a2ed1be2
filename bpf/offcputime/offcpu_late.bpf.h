/* SPDX-License-Identifier: MIT */
/* offcpu_late.bpf.h: events after the end of a window that closes by the clock.
 *
 * User space comes later to ask who still waits: on an overloaded machine by seconds, in which waits that were open at the end
 * go on to end. Each is closed there, at the window's end, by the event that ends it: that alone knows its stack. All other
 * late events cost a look at the target.
 */
#ifndef __OFFCPU_LATE_BPF_H__
#define __OFFCPU_LATE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "offcpu_phases.bpf.h"

/* A window that is closed early has counted events of the moment between its end and the word that it has ended. */
static __always_inline void clip(__u64 *ns)
{
	if (*ns > window_end_ns)
		*ns = window_end_ns;
}

/* The wait that was open at the window's end is over: the thread's stacks and its call will no longer be those of it. */
static __always_inline void runs_on(struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member || member->ran_after_ns == window_end_ns)
		return;
	member->ran_after_ns = window_end_ns;
	member->was_told = is_told(member, task);
	member->was_new = !switches_of(task);
	member->late_call = call_of(member, task, true);
}

/* The target behind a task; NULL if it was none in the window. */
static __always_inline struct member *late_member_of(struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member || member->joined_ns >= window_end_ns || member->phase == PHASE_DEAD)
		return NULL;
	clip(&member->since_ns);
	clip(&member->off_ns);
	clip(&member->runnable_ns);
	return member;
}

/* The closing iterator counts threads that run at the end, but not those that are gone by then. */
static __always_inline void left_late(struct member *member, struct task_struct *task, bool is_dead,
				      struct offcputime_totals *sums)
{
	__u64 end = window_end_ns;

	settle(member, PHASE_RUNNING);
	if (member->phase != PHASE_RUNNING) {
		count_unseen(member, end, sums);
		member->since_ns = end;
		member->phase = PHASE_RUNNING;
	}
	if (member->ended_off_ns) {
		count_unreported(member, member->ended_off_ns);
		member->ended_off_ns = 0;
	}
	if (!is_dead)
		return;
	add_oncpu(member, elapsed(member->since_ns, end), sums);
	sums->threads_exited++;
	end_lifetime(member, task, end, sums);
	member->phase = PHASE_DEAD;
}

static __always_inline void made_runnable_late(struct member *member, struct task_struct *task,
					       struct offcputime_totals *sums)
{
	if (is_unsettled(member))
		settle(member, is_on_cpu(task) ? PHASE_RUNNING : PHASE_BLOCKED);
	if (member->phase == PHASE_BLOCKED)
		end_blocking(member, window_end_ns, sums);
}

/* Returns whether an interval is to be reported. */
static __always_inline bool runs_late(struct member *member, struct offcputime_totals *sums)
{
	settle(member, PHASE_RUNNABLE);
	if (member->phase == PHASE_RUNNING)
		return false;
	member->is_open = 1;
	return close_interval(member, window_end_ns, sums);
}

#endif
