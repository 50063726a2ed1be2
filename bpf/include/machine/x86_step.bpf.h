/* SPDX-License-Identifier: MIT */
/* x86_step.bpf.h: what is x86-64's own in a step from a user frame to its caller. */
#ifndef __MACHINE_X86_STEP_BPF_H__
#define __MACHINE_X86_STEP_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "machine/x86_code.bpf.h"
#include "unwind_state.bpf.h"

/* Words below the CFA where the caller's rbx is, or BX_KEPT; 0: not said. Only in files whose CFA is in rbx somewhere. */
#define RULE_BX_SLOT(rule) RULE_SLOT(rule)
/* Code that has not touched it. */
#define BX_KEPT 63

/* The dynamic linker's lazy binding aligns its stack and remembers the old one in rbx. */
#define DWARF_RBX 3

/* Before the first step. */
static __always_inline void begin_walk(struct unwind *at)
{
	at->followed.bx = 0;
}

/* Beside ip, sp and bp nothing is known of the caller. */
static __always_inline void forget_registers(struct unwind *at)
{
	at->followed.bx = 0;
}

/* Behind a step by the frame pointer. */
static __always_inline void follow_frame_record(struct unwind *at)
{
	forget_registers(at);
}

/* A register by its DWARF number; 0: it is not known in this frame. */
static __always_inline __u64 known_register(const struct unwind *at, __u32 number)
{
	if (at->leaf)
		return leaf_register(at, number);
	return number == DWARF_RBX ? at->followed.bx : 0;
}

static __always_inline __u64 cfa_by_sp(const struct unwind *at, struct unwind_rule rule)
{
	return at->sp + rule.cfa_offset;
}

/* Callers are further up, always: this ends every loop that memory could hold. */
static __always_inline bool leads_on(const struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	return cfa > at->sp;
}

/* Offsets in the kernel's struct rt_sigframe, from sp in the handler's return stub: struct sigcontext begins at 40; rbx is behind rbp. */
#define SIGFRAME_BP (40 + 10 * 8)
#define SIGFRAME_SP (40 + 15 * 8)

static __always_inline int step_out_of_signal(struct unwind *at)
{
	__u64 frame = at->sp;

	if (!read_user(at->frame, 2 * sizeof(__u64), frame + SIGFRAME_BP))
		return STACK_END_UNREADABLE;
	at->bp = at->frame[0];
	at->followed.bx = at->frame[1];
	if (!read_user(at->frame, 2 * sizeof(__u64), frame + SIGFRAME_SP))
		return STACK_END_UNREADABLE;
	at->sp = at->frame[0];
	at->ip = at->frame[1];
	at->exact = 1;
	at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

/* Fetches the return address and, where it was saved, the caller's frame pointer: with one read if they are close. */
static __always_inline int leave_frame(struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	__s64 saved = rule.fp_offset;
	__u64 bytes = -saved;

	if (RULE_BX_SLOT(rule) == BX_KEPT) {
		if (at->leaf)
			at->followed.bx = leaf_register(at, DWARF_RBX);
	} else {
		at->followed.bx = 0;
		if (RULE_BX_SLOT(rule) && !read_user(&at->followed.bx, sizeof(at->followed.bx), cfa - 8 * RULE_BX_SLOT(rule)))
			return STACK_END_UNREADABLE;
	}
	if (RULE_FP(rule) == FP_AT_CFA && saved <= -16 && saved >= -FRAME_WORDS * 8 && !(saved & 7)) {
		if (!read_user(at->frame, bytes & (2 * FRAME_WORDS * 8 - 1), cfa - bytes))
			return STACK_END_UNREADABLE;
		at->bp = at->frame[0];
		at->ip = at->frame[(bytes / 8 - 1) & (FRAME_WORDS - 1)];
	} else {
		if (!read_user(&at->ip, sizeof(at->ip), cfa - 8))
			return STACK_END_UNREADABLE;
		if (RULE_FP(rule) == FP_AT_CFA && !read_user(&at->bp, sizeof(at->bp), cfa + saved))
			return STACK_END_UNREADABLE;
		if (RULE_FP(rule) == FP_AT_BP && !read_user(&at->bp, sizeof(at->bp), at->bp + saved))
			return STACK_END_UNREADABLE;
		/* Neither a frame nor the mark of the outermost. */
		if (RULE_FP(rule) == FP_LOST)
			at->bp = 1;
	}
	at->sp = cfa;
	at->exact = at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

/* Without a table. The frame pointer is right where code keeps one, and not where it is about to make or leave its frame:
 * what the code does next says so. CFA_UNCOVERED: it does not.
 */
static __always_inline struct unwind_rule rule_by_code(const struct unwind *at, struct unwind_rule rule)
{
	__u32 exit = 0;

	if (rule.cfa == CFA_UNCOVERED && unwind_mode == UNWIND_AUTO && !at->compat)
		exit = find_exit(at->ip, at->sp, at->exact);
	if (!exit)
		return rule;
	rule.cfa = CFA_SP;
	rule.cfa_offset = exit & ~7U;
	if (exit & CODE_SAVED_BP) {
		rule.fp = FP_AT_CFA;
		rule.fp_offset = -16;
	}
	return rule;
}

#endif
