/* SPDX-License-Identifier: MIT */
/* futex_stacks.bpf.h: where a thread waits for a futex, by its stack. */
#ifndef __FUTEX_STACKS_BPF_H__
#define __FUTEX_STACKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "futex_identity.bpf.h"
#include "futex_state.bpf.h"
#include "stacks.bpf.h"

static __noinline void walk_futex_waiter(struct futex_wait *futex, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.unwalked, 1);
		identify_futex(futex, task);
		describe_named(futex, task);
		return;
	}
	if (!leaves_out_stack()) {
		scratch->unwind.outer_sp = outer_sp(&futex->outer, futex->wait.begin_ns, saved_sp(user_regs_of(task)));
		futex->wait.user_stack = user_stack(slot, scratch, task, tgid_of(targets.pid_namespace, task));
		futex->wait.inside = scratch->unwind.inside;
		scratch->unwind.outer_sp = 0;
	}
	identify_futex(futex, task);
	if (!describe_named(futex, task))
		describe_lock(futex, task, slot, scratch);
	release_scratch(scratch);
}

#endif
