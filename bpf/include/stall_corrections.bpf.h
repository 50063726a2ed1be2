/* SPDX-License-Identifier: MIT */
/* stall_corrections.bpf.h: sets right what is known of tasks and CPUs where switches are hidden from us. */
#ifndef __STALL_CORRECTIONS_BPF_H__
#define __STALL_CORRECTIONS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "stall_phases.bpf.h"

/* What has been hidden shows when what a task does is not what we take it for. In the first moments of a phase the kernel
 * itself is still at it.
 */
static __always_inline void correct(struct member *member, struct task_struct *task, __u64 now)
{
	bool on_cpu = is_on_cpu(task);

	if (member->phase == PHASE_DEAD || now < member->since_ns + SWITCHING_NS)
		return;
	if (is_stale(member, task))
		drop_phase(member, now);
	else if (member->phase == PHASE_WAITING || member->phase == PHASE_ASLEEP) {
		if (on_cpu)
			drop_phase(member, now);
		else if (member->phase == PHASE_ASLEEP && is_queued(task))
			begin_waiting(member, task, now);
	} else if (member->phase == PHASE_RUNNING && !on_cpu) {
		drop_phase(member, now);
		settle_idle(member->cpu, now);
	}
}

/* Run now and then where switches are hidden. */
SEC("iter/task")
int correct_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member = task ? present_member_of(task) : NULL;

	if (member)
		correct(member, task, bpf_ktime_get_ns());
	return 0;
}

#endif
