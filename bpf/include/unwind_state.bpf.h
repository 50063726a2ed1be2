/* SPDX-License-Identifier: MIT */
/* unwind_state.bpf.h: where a walk of a user stack is, and what was found on the way.
 *
 * The state lives in per-CPU scratch, not on the BPF stack, where the verifier would follow each of its values. A rule that
 * was found is kept by address, per CPU: stacks resemble each other, and the search is most of the cost.
 */
#ifndef __UNWIND_STATE_BPF_H__
#define __UNWIND_STATE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "python_state.bpf.h"
#include "registers.bpf.h"
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
/* Bits of a return address that pointer authentication (PAC of arm64) leaves alone: they depend on the processor and on the
 * kernel's address space. All, elsewhere.
 */
const volatile __u64 code_mask = ~0ULL;

/* Words of a frame that one read fetches at most: return address, saved frame pointer, and what lies between. */
#define FRAME_WORDS 8

/* Mappings without a list that a walk remembers, a power of two: the program, the dynamic linker, the vDSO, some libraries. */
#define MAX_UNLISTED 8
/* Of a node of the kernel's tree of mappings. */
#define MOST_PIVOTS 15

/* Words of the longest record. */
#define MAX_RECORD_WORDS (MAX_STACK_DEPTH + PYTHON_WORDS)

/* One ring buffer record; `depth` addresses follow, leaf first, and behind a user stack's the frames of Python. */
struct stack_record {
	__u64 id;
	__u64 time_ns;
	__u32 tgid;
	__u16 depth;
	__u8 kind;
	/* enum stack_end, of user stacks. */
	__u8 end;
	union {
		__u64 addresses[MAX_STACK_DEPTH];
		__u64 words[MAX_RECORD_WORDS];
	};
};

struct unwind {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Everything else that is known of this frame. */
	struct followed_registers followed;
	/* All registers of a leaf. */
	struct user_regs regs;
	struct unwind_process process;
	/* Mappings that no list has, and that this walk has met: the last of `met`. */
	struct unwind_mapping unlisted[MAX_UNLISTED];
	__u32 met;
	/* What is looked at to find one: here, for want of room on the stack. */
	struct unwind_file file;
	__u64 pivots[MOST_PIVOTS];
	/* Twice as long as it is used, for the verifier, which knows a length by its mask only. */
	__u64 frame[2 * FRAME_WORDS];
	/* A place on the same stack, by the stack pointer that the thread had there; 0: none is asked about. */
	__u64 outer_sp;
	/* Frames, from the leaf on, that lie inside of that place: the thread was there without them. */
	__u32 inside;
	/* `ip` is where the thread is, not where a call returns to. */
	__u8 exact;
	/* No frame was left yet: all registers are known. */
	__u8 leaf;
	/* The process is not listed: its mappings are found one by one. */
	__u8 is_unlisted;
	/* Some table of the process is known. */
	__u8 has_tables;
	/* A 32-bit program's frame pointers are 4 bytes apart. */
	__u8 compat;
};

struct stack_scratch {
	/* For those who claim a scratch instead of owning one. */
	__u64 busy;
	struct stack_record record;
	struct unwind unwind;
	struct python_walk python;
};

/* Walks may nest on one CPU: an interrupt wakes somebody, a uprobe's program is preempted. Each context has its own. */
#define SCRATCHES 4

MAP(PERCPU_ARRAY, stack_scratches, __u32, struct stack_scratch, SCRATCHES);

static __always_inline bool read_user(void *to, __u32 bytes, __u64 from)
{
	return !bpf_probe_read_user(to, bytes, (void *)from);
}

/* A register by its DWARF number, of a thread that has not left the frame that it was interrupted in. */
static __always_inline __u64 leaf_register(const struct unwind *at, __u32 number)
{
	return register_by_number(&at->regs, number);
}

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

PER_CPU(rule_cache, struct rule_cache);

/* Index of the rule for an address by a process's list of mappings; 0: none covers it. */
__noinline __u32 search_rule(__u32 mappings_at, __u32 mappings, __u64 pc)
{
	__u32 word = find_mapping(mappings_at, mappings, pc);
	struct unwind_chunk *chunk = unwind_chunk_of(word);
	struct unwind_mapping *mapping;
	__u64 offset;

	if (!word || !chunk)
		return 0;
	mapping = mapping_in(chunk, word);
	offset = pc - mapping->shift;
	if (offset >> PAGE_SHIFT_OF_INDEX >= mapping->pages)
		return 0;
	return find_rule(mapping->pages_at, offset);
}

#endif
