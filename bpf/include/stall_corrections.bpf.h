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

/* CPUs that correct_cpus has looked at; user space begins with 0. */
__u32 corrected_cpus = 0;

/* Run before the kernel's CPUs are folded into one: an idle CPU that is taken for busy would weigh as much as one at work. One
 * CPU for each task, whichever that is: some kernels refuse iterators over maps.
 */
SEC("iter/task")
int correct_cpus(struct bpf_iter__task *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 cpu = corrected_cpus;
	struct stalls *at = ctx->task ? stalls_of(cpu) : NULL;

	if (!at)
		return 0;
	corrected_cpus = cpu + 1;
	if (has_gone_idle(at, now)) {
		__sync_fetch_and_add(&losses.unseen, 1);
		settle_idle(cpu, now);
	}
	return 0;
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
