/* SPDX-License-Identifier: MIT */
/* unwind_tables.bpf.h: what user space made of .eh_frame, and how to look it up.
 *
 * All tables lie in one space of 32-bit words, cut into chunks that user space makes when it needs them and fills through
 * shared memory: a program's rows, its index of pages, and every process's list of executable mappings. Numbers in them
 * were checked by user space; here each is masked all the same, so that a wrong one costs a stack and nothing else.
 */
#ifndef __UNWIND_TABLES_BPF_H__
#define __UNWIND_TABLES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"

#define CHUNK_SHIFT 19
#define CHUNK_WORDS (1 << CHUNK_SHIFT)
#define CHUNK_MASK (CHUNK_WORDS - 1)
/* 2 MiB each: 256 MiB in all. */
#define MAX_CHUNKS 128
#define MAX_RULES 16384
#define MAX_UNWOUND_PROCESSES 32768
#define MAX_UNWOUND_FILES 8192
/* Mappings of one process; powers of two below bound the searches. */
#define MAX_MAPPINGS_SHIFT 12
/* Bytes of code that one page of the index stands for; a row in it is at least one byte. */
#define PAGE_SHIFT_OF_INDEX 10

/* How to find the canonical frame address (CFA): the stack pointer before the call that made the frame. */
enum unwind_cfa {
	/* No CFI: follow the frame pointer. */
	CFA_UNCOVERED = 0,
	/* sp + cfa_offset */
	CFA_SP,
	/* bp + cfa_offset */
	CFA_BP,
	/* *(sp + (cfa_offset >> 8)) + (cfa_offset & 255) */
	CFA_SP_DEREF,
	CFA_BP_DEREF,
	/* sp + 8, + 8 more in the last bytes of a 16-byte stub: where its push is done. */
	CFA_PLT,
	/* The kernel's signal frame, all registers in it. */
	CFA_SIGNAL,
	/* The outermost frame. */
	CFA_END,
	/* DWARF register (cfa_offset & 255) + (cfa_offset >> 8): in a leaf, and rbx where the callee kept or saved it. */
	CFA_REGISTER,
	/* Leaf only: sp + (cfa_offset >> 8), the return address in DWARF register (cfa_offset & 255). */
	CFA_RA_REGISTER,
	/* CFI that these rules cannot say. */
	CFA_UNSUPPORTED,
};

/* Where the caller's frame pointer is. */
enum unwind_fp {
	FP_SAME = 0,
	/* *(CFA + fp_offset) */
	FP_AT_CFA,
	/* *(bp + fp_offset) */
	FP_AT_BP,
	FP_LOST,
};

/* A place that the architecture gives a meaning: where the caller's rbx is, or where the return address is. */
#define RULE_SLOT(rule) ((rule).fp >> 2)
#define RULE_FP(rule) ((rule).fp & 3)

struct unwind_rule {
	__u8 cfa;
	/* enum unwind_fp, and above its two bits the slot. */
	__u8 fp;
	__s16 fp_offset;
	__s32 cfa_offset;
};

/* One executable mapping; a process's list is sorted by address. Eight words, aligned to eight. */
struct unwind_mapping {
	__u64 begin;
	__u64 end;
	/* Subtract it from an address to get the offset into the page index. */
	__u64 shift;
	/* Word of the page index, 0: no table; number of pages. */
	__u32 pages_at;
	__u32 pages;
};

struct unwind_process {
	/* mm->start_stack: tells an address space from the one before exec. */
	__u64 start_stack;
	/* Word of its list. */
	__u32 mappings_at;
	__u32 mappings;
	/* Another one with every change: what was cached for the old list is not found again. */
	__u32 generation;
	/* Number of its interpreter of Python; 0: it has none. */
	__u32 python;
};

/* A part of a file as the kernel knows it, also where stat(2) says otherwise (overlayfs, btrfs). */
struct unwind_file {
	__u64 inode;
	/* Of the mapping's first byte. */
	__u64 offset;
	/* Its last change (ctime), since 1970: an inode may become another program's. */
	__u64 changed_ns;
	/* As in the kernel: the major number << 20 | the minor. */
	__u32 device;
	__u32 pad;
};

struct unwind_file_table {
	/* As a mapping's, less its begin. */
	__u64 shift;
	__u32 pages_at;
	__u32 pages;
};

struct unwind_chunk {
	__u32 words[CHUNK_WORDS];
};

struct chunk_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* By size: clang leaves a type that is only pointed to out of BTF. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct unwind_chunk));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CHUNKS);
	__type(key, __u32);
	__array(values, struct chunk_map);
} unwind_chunks SEC(".maps");

struct unwind_rules {
	struct unwind_rule rules[MAX_RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct unwind_rules);
} unwind_rules SEC(".maps");

/* Process ID as the tool sees it → mappings */
MAP(HASH, unwind_processes, __u32, struct unwind_process, MAX_UNWOUND_PROCESSES);

/* Tables by file, for processes that are not in the list above. */
MAP(HASH, unwind_files, struct unwind_file, struct unwind_file_table, MAX_UNWOUND_FILES);

static __always_inline struct unwind_chunk *unwind_chunk_of(__u32 word)
{
	__u32 index = word >> CHUNK_SHIFT, zero = 0;
	void *chunk = bpf_map_lookup_elem(&unwind_chunks, &index);

	return chunk ? bpf_map_lookup_elem(chunk, &zero) : NULL;
}

static __always_inline struct unwind_mapping *mapping_in(struct unwind_chunk *chunk, __u32 word)
{
	return (struct unwind_mapping *)&chunk->words[word & CHUNK_MASK & ~7U];
}

/* All ones if a <= b, else 0; the two lie less than 2^63 apart. Searches that branch on what they compare would have the verifier
 * follow each branch of each step: 44,000 instructions of profile's 165,000.
 */
static __always_inline __u32 mask_if_at_most(__u64 a, __u64 b)
{
	__u64 above = (b - a) >> 63;

	barrier_var(above);
	return (__u32)above - 1;
}

/* The mapping of a list that holds an address, as its word; 0: none does. A function of its own, so that the verifier
 * walks the search once and not once per frame.
 */
__noinline __u32 find_mapping(__u32 list_at, __u32 length, __u64 address)
{
	struct unwind_chunk *chunk = unwind_chunk_of(list_at);
	__u32 last = 0, left = length;
	struct unwind_mapping *found;

	if (!chunk || !length)
		return 0;
	/* The last that begins at or before the address is among `left`, from `last` on. */
	for (int i = 0; i <= MAX_MAPPINGS_SHIFT; i++) {
		__u32 half = left / 2;

		if (!half)
			break;
		last += half & mask_if_at_most(mapping_in(chunk, list_at + (last + half) * 8)->begin, address);
		left -= half;
	}
	found = mapping_in(chunk, list_at + last * 8);
	return found->begin <= address && address < found->end ? list_at + last * 8 : 0;
}

/* Index of the rule for the byte at `offset` into the code that a page index stands for. */
__noinline __u32 find_rule(__u32 pages_at, __u64 offset)
{
	__u32 page_at = pages_at + (__u32)(offset >> PAGE_SHIFT_OF_INDEX) * 2;
	/* Rows are compared whole: the offset in their upper half, any rule in the lower. */
	__u32 wanted = (__u32)(offset & ((1 << PAGE_SHIFT_OF_INDEX) - 1)) << 16 | 0xffff;
	struct unwind_chunk *chunk = unwind_chunk_of(page_at);
	__u32 first, count, entry_rule, last = 0, left, row;

	if (!chunk)
		return 0;
	first = chunk->words[page_at & CHUNK_MASK & ~1U];
	count = chunk->words[(page_at & CHUNK_MASK & ~1U) + 1];
	entry_rule = count >> 16;
	left = count & 0xffff;
	if (!left)
		return entry_rule;
	chunk = unwind_chunk_of(first);
	if (!chunk)
		return 0;
	for (int i = 0; i <= PAGE_SHIFT_OF_INDEX; i++) {
		__u32 half = left / 2;

		if (!half)
			break;
		last += half & mask_if_at_most(chunk->words[(first + last + half) & CHUNK_MASK], wanted);
		left -= half;
	}
	row = chunk->words[(first + last) & CHUNK_MASK];
	return row <= wanted ? row & 0xffff : entry_rule;
}

#endif
