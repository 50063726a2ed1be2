/* SPDX-License-Identifier: MIT */
/* python_state.bpf.h: what user space knows of an interpreter of Python, and where a walk of its frames is.
 *
 * Offsets come from user space, which has held them to the interpreter's own file. Each is masked here all the same: what lies
 * behind them is another process's, and may be anything.
 */
#ifndef __PYTHON_STATE_BPF_H__
#define __PYTHON_STATE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"

#define MAX_PYTHON_FRAMES 128
/* Interpreters that differ in build, or in the key of their threads' state; number 0 is none. */
#define MAX_PYTHONS 256
/* Bytes that are read of a frame and of a code object, at most: powers of two. */
#define PYTHON_OBJECT_BYTES 128
/* Words of four bytes by which a code object is known again. */
#define PYTHON_CHECKED 7

/* The sign of a frame that C code has called: beyond it lies another call of the interpreter's loop. */
enum python_entry {
	/* Each has a call of the loop for itself, until 3.10. */
	PYTHON_ENTRY_EACH = 0,
	/* Its byte says so, 3.11. */
	PYTHON_ENTRY_FLAG,
	/* The frame outside of it has the byte, and is no function's, from 3.12 on. */
	PYTHON_ENTRY_SHIM,
};

struct python_layout {
	/* Address of PyCode_Type; 0: it is not known. */
	__u64 code_type;
	/* Clears the marks in a pointer to a code object. */
	__u64 code_mask;
	/* From the thread pointer to the pointer to the thread's state. */
	__s32 state_at;
	/* The thread's state: the innermost frame, or what leads to it. */
	__u16 frame_at;
	/* The place in what leads to it; 0xffff: nothing does. */
	__u16 through_at;
	/* Places in a frame. */
	__u8 code_at;
	__u8 previous_at;
	__u8 instruction_at;
	/* The instruction is a number of 32 bits, no address. */
	__u8 instruction_is_index;
	__u8 owner_at;
	__u8 entry_value;
	/* enum python_entry */
	__u8 entry;
	__u8 frame_bytes;
	__u8 code_bytes;
	/* Places in a code object. */
	__u8 type_at;
	/* The first of PYTHON_CHECKED, in words of four bytes. */
	__u8 checked_at;
	__u8 pad[5];
};

/* By the number in struct unwind_process. */
MAP(ARRAY, pythons, __u32, struct python_layout, MAX_PYTHONS);

/* The end of a walk of Python's frames. */
enum python_end {
	/* At the thread's first. */
	PYTHON_END_ROOT = 0,
	/* MAX_PYTHON_FRAMES, and more. */
	PYTHON_END_DEPTH,
	/* Memory that is not there, or not paged in. */
	PYTHON_END_UNREADABLE,
	/* A frame without a code object. */
	PYTHON_END_BROKEN,
};

/* The second word of a frame: where in its code it is, then this, then 24 bits by which the code is known again. */
#define PYTHON_ENTRY_BIT (1ULL << 32)
#define PYTHON_CHECK_SHIFT 40

/* Behind a stack's addresses: a word that says how many frames there are and, from bit 16 on, how they end; then two words a
 * frame, innermost first: its code object, and the above.
 */
#define PYTHON_WORDS (1 + 2 * MAX_PYTHON_FRAMES)

struct python_walk {
	/* The frame that it is at. */
	__u64 frame;
	/* The sum of all words. */
	__u64 hash;
	struct python_layout layout;
	/* Twice as long as they are used, for the verifier, which knows a length by its mask only. */
	__u8 object[2 * PYTHON_OBJECT_BYTES];
	__u32 code[2 * PYTHON_OBJECT_BYTES / 4];
	/* Frames so far. */
	__u32 frames;
	/* Words of the record; 0: the thread runs no Python. */
	__u32 words;
};

#endif
