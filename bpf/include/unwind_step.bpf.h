/* SPDX-License-Identifier: MIT */
/* unwind_step.bpf.h: from a user frame to its caller, by the rules that .eh_frame gives, and by the frame pointer where it
 * gives none.
 *
 * The walk's state lives in per-CPU scratch, not on the BPF stack, and a step is a function of its own: the verifier sees
 * 127 calls of something that it has checked once. A rule that was found is kept by address, per CPU: stacks resemble each
 * other, and the search is most of the cost.
 */
#ifndef __UNWIND_STEP_BPF_H__
#define __UNWIND_STEP_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "unwind_tables.bpf.h"

#define MAX_STACK_DEPTH 127

/* How a user stack ended. */
enum stack_end {
	/* At the thread's first function. */
	STACK_END_ROOT = 0,
	/* MAX_STACK_DEPTH frames, and more. */
	STACK_END_DEPTH,
	/* Code without a table and without a frame pointer. */
	STACK_END_NO_TABLE,
	/* Memory that is not there, or not paged in. */
	STACK_END_UNREADABLE,
	/* CFI that the tables cannot say. */
	STACK_END_UNSUPPORTED,
};

/* What a step says when there is another frame. */
#define STEP_ON (-1)

/* How to walk. */
enum unwind_mode {
	/* Tables, and frame pointers where there are none. */
	UNWIND_AUTO = 0,
	UNWIND_FP,
	UNWIND_CFI,
};

const volatile __u32 unwind_mode = UNWIND_AUTO;

/* Words of a frame that one read fetches at most: return address, saved frame pointer, and what lies between. */
#define FRAME_WORDS 8

/* One ring buffer record; `depth` addresses follow, leaf first. */
struct stack_record {
	__u64 id;
	__u64 time_ns;
	__u32 tgid;
	__u16 depth;
	__u8 kind;
	/* enum stack_end, of user stacks. */
	__u8 end;
	__u64 addresses[MAX_STACK_DEPTH];
};

struct unwind {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* rbx, if the frame that was just left had saved it; else 0. */
	__u64 bx;
	/* All registers of a leaf. */
	struct user_regs regs;
	struct unwind_process process;
	/* Twice as long as it is used, for the verifier, which knows a length by its mask only. */
	__u64 frame[2 * FRAME_WORDS];
	/* `ip` is where the thread is, not where a call returns to. */
	__u8 exact;
	/* No frame was left yet: all registers are known. */
	__u8 leaf;
	/* A 32-bit program's frame pointers are 4 bytes apart. */
	__u8 compat;
};

struct stack_scratch {
	/* For those who claim a scratch instead of owning one. */
	__u64 busy;
	struct stack_record record;
	struct unwind unwind;
};

/* Walks may nest on one CPU: an interrupt wakes somebody, a uprobe's program is preempted. Each context has its own. */
#define SCRATCHES 4

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct stack_scratch);
} stack_scratches SEC(".maps");

#define CACHED_RULES 1024

struct cached_rule {
	__u64 pc;
	__u32 generation;
	__u32 pad;
	struct unwind_rule rule;
};

struct rule_cache {
	struct cached_rule rules[CACHED_RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_cache);
} rule_cache SEC(".maps");

static __always_inline struct unwind_rule search_rule(const struct unwind *at, __u64 pc)
{
	struct unwind_rule none = {};
	struct unwind_mapping *mapping;
	struct unwind_rules *rules;
	struct unwind_chunk *chunk;
	__u32 word, zero = 0;
	__u64 offset;

	word = find_mapping(at->process.mappings_at, at->process.mappings, pc);
	if (!word)
		return none;
	chunk = unwind_chunk_of(word);
	rules = bpf_map_lookup_elem(&unwind_rules, &zero);
	if (!chunk || !rules)
		return none;
	mapping = mapping_in(chunk, word);
	offset = pc - mapping->shift;
	if (offset >> PAGE_SHIFT_OF_INDEX >= mapping->pages)
		return none;
	return rules->rules[find_rule(mapping->pages_at, offset) & (MAX_RULES - 1)];
}

static __always_inline struct unwind_rule rule_for(const struct unwind *at, __u64 pc)
{
	struct unwind_rule rule = {};
	struct cached_rule *cached;
	struct rule_cache *cache;
	__u32 zero = 0;

	if (!at->process.mappings)
		return rule;
	cache = bpf_map_lookup_elem(&rule_cache, &zero);
	if (!cache)
		return rule;
	cached = &cache->rules[(pc ^ pc >> 10 ^ at->process.generation) & (CACHED_RULES - 1)];
	if (cached->pc == pc && cached->generation == at->process.generation) {
		rule = cached->rule;
		barrier();
		/* An interrupt's walk may have put another rule here meanwhile. */
		if (cached->pc == pc && cached->generation == at->process.generation)
			return rule;
	}
	rule = search_rule(at, pc);
	cached->pc = 0;
	barrier();
	cached->rule = rule;
	cached->generation = at->process.generation;
	barrier();
	cached->pc = pc;
	return rule;
}

static __always_inline bool read_user(void *to, __u32 bytes, __u64 from)
{
	return !bpf_probe_read_user(to, bytes, (void *)from);
}

/* A register by its DWARF number, of a thread that has not left the frame that it was interrupted in. */
static __always_inline __u64 leaf_register(const struct unwind *at, __u32 number)
{
	switch (number) {
	case 0:
		return at->regs.ax;
	case 1:
		return at->regs.dx;
	case 2:
		return at->regs.cx;
	case 3:
		return at->regs.bx;
	case 4:
		return at->regs.si;
	case 5:
		return at->regs.di;
	case 8:
		return at->regs.r8;
	case 9:
		return at->regs.r9;
	case 10:
		return at->regs.r10;
	case 11:
		return at->regs.r11;
	case 12:
		return at->regs.r12;
	case 13:
		return at->regs.r13;
	case 14:
		return at->regs.r14;
	case 15:
		return at->regs.r15;
	default:
		return 0;
	}
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

/* [bp] = caller's bp, return address. */
static __always_inline int step_by_frame_pointer(struct unwind *at)
{
	if (unwind_mode == UNWIND_CFI)
		return STACK_END_NO_TABLE;
	/* The ABI has the outermost frame's be 0. In a leaf that proves nothing: most code keeps no frame pointer, and
	 * nothing else changed the 0 that _start began with.
	 */
	if (!at->bp)
		return at->leaf ? STACK_END_NO_TABLE : STACK_END_ROOT;
	if (at->bp < at->sp || at->bp & 3)
		return STACK_END_NO_TABLE;
	if (!read_frame_pointer(at))
		return STACK_END_UNREADABLE;
	if (!at->frame[1])
		return STACK_END_ROOT;
	at->sp = at->bp + (at->compat ? 8 : 16);
	at->bp = at->frame[0];
	at->ip = at->frame[1];
	at->bx = 0;
	at->exact = at->leaf = 0;
	return STEP_ON;
}

/* Offsets in the kernel's struct rt_sigframe, from sp in the handler's return stub: struct sigcontext begins at 40. */
#define SIGFRAME_BP (40 + 10 * 8)
#define SIGFRAME_SP (40 + 15 * 8)

static __always_inline int step_out_of_signal(struct unwind *at)
{
	__u64 frame = at->sp;

	if (!read_user(&at->bp, sizeof(at->bp), frame + SIGFRAME_BP) ||
	    !read_user(at->frame, 2 * sizeof(__u64), frame + SIGFRAME_SP))
		return STACK_END_UNREADABLE;
	at->sp = at->frame[0];
	at->ip = at->frame[1];
	at->bx = 0;
	at->exact = 1;
	at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

/* Fetches the return address and, where it was saved, the caller's frame pointer: with one read if they are close. */
static __always_inline int leave_frame(struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	__s64 saved = rule.fp_offset;
	__u64 bytes = -saved;

	at->bx = 0;
	if (RULE_BX_SLOT(rule) && !read_user(&at->bx, sizeof(at->bx), cfa - 8 * RULE_BX_SLOT(rule)))
		return STACK_END_UNREADABLE;
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

/* The dynamic linker's lazy binding aligns its stack and remembers the old one in rbx. */
#define DWARF_RBX 3

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

/* Notes the frame that `slot`'s walk is at and goes to its caller; STEP_ON, or how the stack ended. */
__noinline int unwind_step(__u32 slot)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct unwind_rule rule;
	struct unwind *at;
	__u32 depth;
	__u64 pc;

	if (!scratch)
		return STACK_END_NO_TABLE;
	at = &scratch->unwind;
	depth = scratch->record.depth;
	if (depth >= MAX_STACK_DEPTH)
		return STACK_END_DEPTH;
	/* A call may be its function's last instruction: the byte before the return address is inside it. */
	pc = at->ip - !at->exact;
	rule = rule_for(at, pc);
	/* The stub was not called: it begins at the return address. */
	scratch->record.addresses[depth] = rule.cfa == CFA_SIGNAL ? at->ip : pc;
	scratch->record.depth = depth + 1;
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

#endif
