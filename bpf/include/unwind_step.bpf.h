/* SPDX-License-Identifier: MIT */
/* unwind_step.bpf.h: from a user frame to its caller, by the rules that .eh_frame gives, and by the frame pointer where it
 * gives none.
 *
 * Steps are taken in a function of their own: the verifier sees some calls of something that it has checked once.
 */
#ifndef __UNWIND_STEP_BPF_H__
#define __UNWIND_STEP_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "unwind_code.bpf.h"
#include "unwind_rule.bpf.h"
#include "unwind_state.bpf.h"

static __always_inline bool read_user(void *to, __u32 bytes, __u64 from)
{
	return !bpf_probe_read_user(to, bytes, (void *)from);
}

/* The dynamic linker's lazy binding aligns its stack and remembers the old one in rbx. */
#define DWARF_RBX 3

/* A register by its DWARF number, of a thread that has not left the frame that it was interrupted in. */
static __always_inline __u64 leaf_register(const struct unwind *at, __u32 number)
{
	return register_by_number(&at->regs, number);
}

static __always_inline bool read_frame_pointer(struct unwind *at)
{
	__u32 words[2];

	if (!at->compat)
		return read_user(at->frame, 2 * sizeof(__u64), at->bp);
	if (!read_user(words, sizeof(words), at->bp))
		return false;
	at->frame[0] = words[0];
	at->frame[1] = words[1];
	return true;
}

/* The ABI has the outermost frame's pointer be 0. So may be the register of code that uses it for something else: a leaf's,
 * for most code keeps none and nothing changed the 0 that _start began with; and as long as no table of a process is known,
 * any code's. Of 32-bit programs none ever is.
 */
static __always_inline int outermost(const struct unwind *at)
{
	bool unknown = unwind_mode == UNWIND_AUTO && !at->has_tables;

	return unknown || at->leaf ? STACK_END_NO_TABLE : STACK_END_ROOT;
}

/* [bp] = caller's bp, return address. */
static __always_inline int step_by_frame_pointer(struct unwind *at)
{
	if (unwind_mode == UNWIND_CFI)
		return STACK_END_NO_TABLE;
	if (!at->bp)
		return outermost(at);
	if (at->bp < at->sp || at->bp & 3)
		return STACK_END_NO_TABLE;
	if (!read_frame_pointer(at))
		return STACK_END_UNREADABLE;
	if (!at->frame[1])
		return outermost(at);
	at->sp = at->bp + (at->compat ? 8 : 16);
	at->bp = at->frame[0];
	at->ip = at->frame[1];
	at->bx = 0;
	at->exact = at->leaf = 0;
	return STEP_ON;
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
	at->bx = at->frame[1];
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
			at->bx = leaf_register(at, DWARF_RBX);
	} else {
		at->bx = 0;
		if (RULE_BX_SLOT(rule) && !read_user(&at->bx, sizeof(at->bx), cfa - 8 * RULE_BX_SLOT(rule)))
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

static __always_inline int step_by_rule(struct unwind *at, struct unwind_rule rule)
{
	__s64 offset = rule.cfa_offset;
	__u64 cfa = 0;

	switch (rule.cfa) {
	case CFA_SP:
		cfa = at->sp + offset;
		break;
	case CFA_BP:
		cfa = at->bp + offset;
		break;
	case CFA_SP_DEREF:
	case CFA_BP_DEREF:
		cfa = rule.cfa == CFA_SP_DEREF ? at->sp : at->bp;
		if (!read_user(at->frame, sizeof(__u64), cfa + (offset >> 8)))
			return STACK_END_UNREADABLE;
		cfa = at->frame[0] + (offset & 255);
		break;
	case CFA_PLT:
		cfa = at->sp + 8 + ((at->ip & 15) >= offset ? 8 : 0);
		break;
	case CFA_REGISTER:
		if (at->leaf)
			cfa = leaf_register(at, offset & 255);
		else if ((offset & 255) == DWARF_RBX)
			cfa = at->bx;
		if (!cfa)
			return STACK_END_UNSUPPORTED;
		cfa += offset >> 8;
		break;
	case CFA_RA_REGISTER:
		if (!at->leaf)
			return STACK_END_UNSUPPORTED;
		at->ip = leaf_register(at, offset & 255);
		at->sp += offset >> 8;
		at->bx = 0;
		at->exact = at->leaf = 0;
		return at->ip ? STEP_ON : STACK_END_ROOT;
	default:
		return STACK_END_UNSUPPORTED;
	}
	/* Callers are further up, always: this ends every loop that memory could hold. */
	if (cfa <= at->sp)
		return STACK_END_NO_TABLE;
	return leave_frame(at, rule, cfa);
}

/* Without a table. The frame pointer is right where code keeps one, and not where it is about to make or leave its frame:
 * what the code does next says so. CFA_UNCOVERED: it does not.
 */
static __always_inline struct unwind_rule rule_by_code(const struct unwind *at)
{
	struct unwind_rule rule = {};
	__u32 exit = 0;

	if (unwind_mode == UNWIND_AUTO && !at->compat)
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

/* The stack grows downwards. */
static __always_inline void compare_with_outer(struct unwind *at, __u32 frames)
{
	if (at->sp <= at->outer_sp)
		at->inside = frames;
}

/* Notes the frame that the walk is at and goes to its caller; STEP_ON, or how the stack ended. */
static __always_inline int unwind_step(__u32 slot, struct stack_scratch *scratch, struct rule_cache *cache)
{
	struct unwind *at = &scratch->unwind;
	__u32 depth = scratch->record.depth;
	struct unwind_rule rule;
	__u64 pc;

	if (depth >= MAX_STACK_DEPTH)
		return STACK_END_DEPTH;
	/* A call may be its function's last instruction: the byte before the return address is inside it. */
	pc = at->ip - !at->exact;
	rule = rule_for(slot, at, cache, pc);
	if (rule.cfa == CFA_UNCOVERED)
		rule = rule_by_code(at);
	/* The stub was not called: it begins at the return address. */
	scratch->record.addresses[depth] = rule.cfa == CFA_SIGNAL ? at->ip : pc;
	scratch->record.depth = depth + 1;
	compare_with_outer(at, depth + 1);
	switch (rule.cfa) {
	case CFA_UNCOVERED:
		return step_by_frame_pointer(at);
	case CFA_END:
		return STACK_END_ROOT;
	case CFA_SIGNAL:
		return step_out_of_signal(at);
	default:
		return step_by_rule(at, rule);
	}
}

/* Steps of one call: enough to make the calls cheap, few enough for the verifier, which walks each. */
#define STEPS_PER_CALL 8

__noinline int unwind_steps(__u32 slot)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct rule_cache *cache;
	__u32 zero = 0;
	int end;

	cache = bpf_map_lookup_elem(&rule_cache, &zero);
	if (!scratch || !cache)
		return STACK_END_NO_TABLE;
	for (int i = 0; i < STEPS_PER_CALL; i++) {
		/* Else clang computes each register's address before the loop and keeps it on the stack, which is small. */
		barrier_var(scratch);
		end = unwind_step(slot, scratch, cache);
		if (end != STEP_ON)
			return end;
	}
	return STEP_ON;
}

/* The whole walk by frame pointers, for processes without tables. */
__noinline int unwind_frame_pointers(__u32 slot)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct unwind *at;
	int end;

	if (!scratch)
		return STACK_END_NO_TABLE;
	at = &scratch->unwind;
	for (__u32 depth = 0; depth < MAX_STACK_DEPTH; depth++) {
		scratch->record.addresses[depth] = at->ip - !at->exact;
		scratch->record.depth = depth + 1;
		compare_with_outer(at, depth + 1);
		end = step_by_frame_pointer(at);
		if (end != STEP_ON)
			return end;
	}
	return STACK_END_DEPTH;
}

#endif
