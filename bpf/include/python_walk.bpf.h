/* SPDX-License-Identifier: MIT */
/* python_walk.bpf.h: Python functions that the current thread is in, innermost first, written behind its stack's addresses.
 *
 * The interpreter's own list of frames is read, from the thread's state on, which lies where pthread_getspecific() looks for it:
 * so threads that wait are walked like those that run. User space puts the functions where the interpreter's loop stands in the
 * stack, and names them.
 */
#ifndef __PYTHON_WALK_BPF_H__
#define __PYTHON_WALK_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "hash.bpf.h"
#include "unwind_state.bpf.h"

#define PYTHON_ON (-1)
/* Frames of one call, as in unwind_step.bpf.h. */
#define PYTHON_FRAMES_PER_CALL 4
/* Frames between C and Python are none: as many again. */
#define PYTHON_CALLS (2 * MAX_PYTHON_FRAMES / PYTHON_FRAMES_PER_CALL + 1)

/* A word of the record behind the stack's addresses. */
static __always_inline void put_python_word(struct stack_scratch *scratch, __u32 index, __u64 word)
{
	__u32 at = scratch->record.depth + index;

	if (at < MAX_RECORD_WORDS)
		scratch->record.words[at] = word;
}

static __always_inline __u64 python_word(const struct python_walk *at, __u32 offset)
{
	return *(__u64 *)&at->object[offset & (PYTHON_OBJECT_BYTES - 1)];
}

/* By which a code object is known again when its name is read: the memory may have become another's. FNV-1a by words, as in user
 * space.
 */
static __always_inline __u64 python_checksum(const struct python_walk *at)
{
	__u32 first = at->layout.checked_at & (PYTHON_OBJECT_BYTES / 4 - 1), sum = 0x811c9dc5;

	for (int i = 0; i < PYTHON_CHECKED; i++)
		sum = (sum ^ at->code[first + i]) * 0x01000193;
	return sum >> 8;
}

static __always_inline bool is_python_code(const struct python_walk *at)
{
	__u32 type = at->layout.type_at & (PYTHON_OBJECT_BYTES - 1);

	return !at->layout.code_type || *(__u64 *)((void *)at->code + type) == at->layout.code_type;
}

/* The place of the instruction that the frame is at: 32 bits, unless the frame is none. */
static __always_inline __u64 python_instruction(const struct python_walk *at, __u64 code)
{
	__u64 word = python_word(at, at->layout.instruction_at);

	return at->layout.instruction_is_index ? (__u32)word : word - code;
}

/* Frames of C have none, and mark the one before them. */
static __always_inline void end_python_entry(struct stack_scratch *scratch)
{
	struct python_walk *at = &scratch->python;
	__u32 last = scratch->record.depth + 2 * at->frames;

	if (!at->frames || last >= MAX_RECORD_WORDS)
		return;
	scratch->record.words[last] |= PYTHON_ENTRY_BIT;
	at->hash = mixed(at->hash, PYTHON_ENTRY_BIT);
}

/* Notes the frame that the walk is at, unless it is C's. */
static __always_inline int note_python_frame(struct stack_scratch *scratch)
{
	struct python_walk *at = &scratch->python;
	__u64 code = python_word(at, at->layout.code_at) & at->layout.code_mask, position;
	bool is_marked = at->object[at->layout.owner_at & (PYTHON_OBJECT_BYTES - 1)] == at->layout.entry_value;
	__u8 entry = at->layout.entry;

	if (entry == PYTHON_ENTRY_SHIM && is_marked) {
		end_python_entry(scratch);
		return PYTHON_ON;
	}
	if (at->frames >= MAX_PYTHON_FRAMES)
		return PYTHON_END_DEPTH;
	if (!read_user(at->code, at->layout.code_bytes & (PYTHON_OBJECT_BYTES - 1), code))
		return PYTHON_END_UNREADABLE;
	position = python_instruction(at, code);
	if (!is_python_code(at) || position >> 32)
		return PYTHON_END_BROKEN;
	position |= python_checksum(at) << PYTHON_CHECK_SHIFT;
	if (entry == PYTHON_ENTRY_EACH || (entry == PYTHON_ENTRY_FLAG && is_marked))
		position |= PYTHON_ENTRY_BIT;
	put_python_word(scratch, 1 + 2 * at->frames, code);
	put_python_word(scratch, 2 + 2 * at->frames, position);
	at->hash = mixed(mixed(at->hash, code), position);
	at->frames++;
	return PYTHON_ON;
}

/* PYTHON_ON, or how the walk ended. */
__noinline int walk_python_frames(__u32 slot)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct python_walk *at;
	int end;

	if (!scratch)
		return PYTHON_END_BROKEN;
	at = &scratch->python;
	for (int i = 0; i < PYTHON_FRAMES_PER_CALL; i++) {
		barrier_var(scratch);
		if (!at->frame)
			return PYTHON_END_ROOT;
		if (!read_user(at->object, at->layout.frame_bytes & (PYTHON_OBJECT_BYTES - 1), at->frame))
			return PYTHON_END_UNREADABLE;
		end = note_python_frame(scratch);
		if (end != PYTHON_ON)
			return end;
		at->frame = python_word(at, at->layout.previous_at);
	}
	return PYTHON_ON;
}

/* The thread's innermost frame. PYTHON_ON, or how the walk ended; without a thread's state the thread has nothing to do with Python. */
static __always_inline int begin_python_walk(struct python_walk *at, __u64 *state)
{
	__u64 thread = thread_pointer_of(current_task());

	*state = 0;
	if (!thread || !read_user(state, sizeof(*state), thread + at->layout.state_at) || !*state)
		return PYTHON_END_ROOT;
	if (!read_user(&at->frame, sizeof(at->frame), *state + at->layout.frame_at))
		return PYTHON_END_UNREADABLE;
	if (at->layout.through_at != 0xffff && at->frame &&
	    !read_user(&at->frame, sizeof(at->frame), at->frame + at->layout.through_at))
		return PYTHON_END_UNREADABLE;
	return PYTHON_ON;
}

/* Walks the frames of the interpreter `number`, behind the walk of the stack. */
__noinline int walk_python(__u32 slot, __u32 number)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct python_layout *layout = bpf_map_lookup_elem(&pythons, &number);
	struct python_walk *at;
	__u64 state;
	int end;

	if (!scratch || !layout)
		return 0;
	at = &scratch->python;
	/* Copied: the entry may become another interpreter's at any time. */
	at->layout = *layout;
	at->frames = 0;
	at->hash = 0;
	end = begin_python_walk(at, &state);
	if (!state)
		return 0;
	for (int i = 0; i < PYTHON_CALLS && end == PYTHON_ON; i++)
		end = walk_python_frames(slot);
	if (end == PYTHON_ON)
		end = PYTHON_END_DEPTH;
	at->hash = mixed(at->hash, at->frames | (__u64)end << 16);
	put_python_word(scratch, 0, at->frames | (__u64)end << 16);
	at->words = 1 + 2 * at->frames;
	return 0;
}

#endif
