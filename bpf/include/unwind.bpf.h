/* SPDX-License-Identifier: MIT */
/* unwind.bpf.h: walks the user stack of the current task, and keeps the kernel's side of what user space knows of
 * processes: a fork inherits, an exec forgets.
 *
 * It is walked where the event is. bpf_task_work (6.18) could put that off to the return to user space, where a page that is
 * not there could be fetched. But in a virtual machine of 6.18 to schedule it took 7.7 us, for each goes through an interrupt of
 * the CPU to itself (irq_work), and a walk by frame pointers in place 0.9; ours takes less.
 */
#ifndef __UNWIND_BPF_H__
#define __UNWIND_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "python_walk.bpf.h"
#include "targets.bpf.h"
#include "unwind_step.bpf.h"

static __always_inline int unwind_by_steps(__u32 slot, bool has_rules)
{
	for (int i = 0; i <= MAX_STACK_DEPTH / STEPS_PER_CALL; i++) {
		int end = has_rules ? unwind_steps(slot) : unwind_frame_pointers(slot);

		if (end != STEP_ON)
			return end;
	}
	return STACK_END_DEPTH;
}

/* Walks the stack of `task`, which is current, from the registers that the caller has put into the scratch. */
static __always_inline void unwind_user(__u32 slot, struct stack_scratch *scratch, struct task_struct *task, __u32 tgid)
{
	struct unwind *at = &scratch->unwind;
	struct unwind_process *process = NULL;
	int end;

	at->process.mappings = at->process.python = 0;
	scratch->python.words = 0;
	if (unwind_mode != UNWIND_FP && !at->compat)
		process = bpf_map_lookup_elem(&unwind_processes, &tgid);
	if (process) {
		/* Copied, then checked: the entry may become another process's at any time. */
		at->process = *process;
		if (at->process.start_stack != BPF_CORE_READ(task, mm, start_stack))
			at->process.mappings = at->process.python = 0;
	}
	at->has_tables = at->process.mappings != 0;
	at->is_unlisted = unwind_mode != UNWIND_FP && !at->compat && !at->process.mappings && can_find_mappings();
	at->met = 0;
	at->leaf = 1;
	begin_walk(at);
	at->inside = 0;
	scratch->record.depth = 0;
	if (at->process.mappings || at->is_unlisted)
		end = unwind_by_steps(slot, true);
	else
		end = unwind_by_steps(slot, false);
	scratch->record.end = end;
	if (at->process.python)
		walk_python(slot, at->process.python);
}

/* From where the thread entered the kernel: a system call, a fault or an interrupt. */
static __always_inline void unwind_from_kernel(__u32 slot, struct stack_scratch *scratch, struct task_struct *task,
					       __u32 tgid)
{
	struct unwind *at = &scratch->unwind;
	const struct pt_regs *regs = user_regs_of(task);

	bpf_probe_read_kernel(&at->regs, sizeof(at->regs), regs);
	at->ip = user_ip(&at->regs);
	at->sp = user_sp(&at->regs);
	at->bp = user_fp(&at->regs);
	at->exact = goes_on_anywhere(regs, &at->regs);
	at->compat = user_is_compat(&at->regs);
	unwind_user(slot, scratch, task, tgid);
}

/* A child has its parent's mappings, from its first instruction on. */
SEC("?tp_btf/sched_process_fork")
int BPF_PROG(unwind_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = tgid_of(targets.pid_namespace, parent), to = tgid_of(targets.pid_namespace, child);
	struct unwind_process *process;

	if (from == to || !to)
		return 0;
	process = bpf_map_lookup_elem(&unwind_processes, &from);
	if (process)
		bpf_map_update_elem(&unwind_processes, &to, process, BPF_ANY);
	return 0;
}

/* The old mappings are gone; user space will say what the new ones are. */
SEC("?tp_btf/sched_process_exec")
int BPF_PROG(unwind_exec, struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task);

	bpf_map_delete_elem(&unwind_processes, &tgid);
	return 0;
}

#endif
