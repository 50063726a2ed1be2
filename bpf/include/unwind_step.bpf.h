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
#include "unwind_machine.bpf.h"
#include "unwind_rule.bpf.h"
#include "unwind_state.bpf.h"

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
	follow_frame_record(at);
	at->exact = at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

static __always_inline int step_by_rule(struct unwind *at, struct unwind_rule rule)
{
	__s64 offset = rule.cfa_offset;
	__u64 cfa = 0;

	switch (rule.cfa) {
	case CFA_SP:
		cfa = cfa_by_sp(at, rule);
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
		cfa = known_register(at, offset & 255);
		if (!cfa)
			return STACK_END_UNSUPPORTED;
		cfa += offset >> 8;
		break;
	case CFA_RA_REGISTER:
		if (!at->leaf)
			return STACK_END_UNSUPPORTED;
		at->ip = leaf_register(at, offset & 255);
		at->sp += offset >> 8;
		forget_registers(at);
		at->exact = at->leaf = 0;
		return at->ip ? STEP_ON : STACK_END_ROOT;
	default:
		return STACK_END_UNSUPPORTED;
	}
	if (!leads_on(at, rule, cfa))
		return STACK_END_NO_TABLE;
	return leave_frame(at, rule, cfa);
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
	rule = rule_by_code(at, rule);
	/* A mask: the verifier of 6.1 does not know the bound of what was on the stack meanwhile. */
	barrier_var(depth);
	depth &= MAX_STACK_DEPTH;
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

/* Steps of one call: enough to make the calls cheap, few enough for the verifier, which walks each in every program that takes
 * stacks.
 */
#define STEPS_PER_CALL 4

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

static __always_inline int step_of_frame_pointers(struct stack_scratch *scratch)
{
	struct unwind *at = &scratch->unwind;
	__u32 depth = scratch->record.depth;

	if (depth >= MAX_STACK_DEPTH)
		return STACK_END_DEPTH;
	barrier_var(depth);
	depth &= MAX_STACK_DEPTH;
	scratch->record.addresses[depth] = at->ip - !at->exact;
	scratch->record.depth = depth + 1;
	compare_with_outer(at, depth + 1);
	return step_by_frame_pointer(at);
}

/* Steps by frame pointers alone, for processes without tables. */
__noinline int unwind_frame_pointers(__u32 slot)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	int end;

	if (!scratch)
		return STACK_END_NO_TABLE;
	for (int i = 0; i < STEPS_PER_CALL; i++) {
		end = step_of_frame_pointers(scratch);
		if (end != STEP_ON)
			return end;
	}
	return STEP_ON;
}

#endif
