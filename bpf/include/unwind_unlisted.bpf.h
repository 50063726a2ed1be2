/* SPDX-License-Identifier: MIT */
/* unwind_unlisted.bpf.h: mappings that user space has not listed yet, from the kernel itself. A program that lives for a
 * millisecond is gone before its list could be made, and a library is called before a list has it, while the tables of these
 * files are long there.
 *
 * The kernel's own ways to a mapping want the mappings' lock, and give one answer, or none, while interrupts are off. So its
 * tree is read as lock_vma_under_rcu() reads it, with helpers that survive whatever is there; a tree that changes meanwhile
 * costs a stack. Needs d4af56c5c7c6 (6.1), which put mappings into a maple tree; before, the walk is by frame pointers.
 */
#ifndef __UNWIND_UNLISTED_BPF_H__
#define __UNWIND_UNLISTED_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "unwind_state.bpf.h"

#define PAGE_BYTES 4096

/* include/linux/maple_tree.h: a node's address has its type in it, and the root a mark. */
#define MAPLE_NODE_MASK 255UL
#define MAPLE_TYPE_SHIFT 3
#define MAPLE_TYPE_MASK 15
#define MAPLE_LEAF_64 1
#define MAPLE_RANGE_64 2
#define MAPLE_ARANGE_64 3
/* As XArray's: what tells a node from an entry. */
#define MAPLE_INTERNAL 2
#define MAPLE_INTERNAL_MASK 3
/* Of trees with a million mappings and more. */
#define MOST_LEVELS 6

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct timespec64___pre_6_11 {
	time64_t tv_sec;
	long tv_nsec;
};
struct inode___pre_6_6 {
	struct timespec64___pre_6_11 i_ctime;
};
struct inode___pre_6_11 {
	struct timespec64___pre_6_11 __i_ctime;
};
#pragma clang attribute pop

#define NS_OF(seconds, ns) ((seconds) * 1000000000ULL + (ns))

/* 13bc24457850 (6.6) renamed the time of the last change, 3aa63a569c64 (6.11) took it apart. A bit above the nanoseconds says
 * since 4e40eff0b573 (6.13) that somebody has asked.
 */
static __always_inline __u64 changed_ns(struct inode *inode)
{
	struct inode___pre_6_11 *old = (void *)inode;
	struct inode___pre_6_6 *older = (void *)inode;

	if (bpf_core_field_exists(inode->i_ctime_sec))
		return NS_OF(BPF_CORE_READ(inode, i_ctime_sec), BPF_CORE_READ(inode, i_ctime_nsec) & 0x7fffffff);
	if (bpf_core_field_exists(old->__i_ctime))
		return NS_OF(BPF_CORE_READ(old, __i_ctime.tv_sec), BPF_CORE_READ(old, __i_ctime.tv_nsec));
	return NS_OF(BPF_CORE_READ(older, i_ctime.tv_sec), BPF_CORE_READ(older, i_ctime.tv_nsec));
}

/* The entry of a maple tree's node for an index: another node, or in leaves a mapping. Sorted pivots are the slots' last
 * indices; the last slot has none, and a 0 ends a node that is not full.
 */
static __always_inline __u64 maple_slot(struct unwind *at, __u64 entry, __u32 type, __u64 index)
{
	__u64 node = entry & ~MAPLE_NODE_MASK, slots, slot = 0;
	__u32 count, found = 0;

	if (type == MAPLE_ARANGE_64) {
		count = bpf_core_field_size(((struct maple_arange_64 *)0)->pivot) / sizeof(__u64);
		slots = node + bpf_core_field_offset(struct maple_arange_64, slot);
	} else {
		count = bpf_core_field_size(((struct maple_range_64 *)0)->pivot) / sizeof(__u64);
		slots = node + bpf_core_field_offset(struct maple_range_64, slot);
	}
	node += bpf_core_field_offset(struct maple_range_64, pivot);
	if (bpf_probe_read_kernel(at->pivots, sizeof(at->pivots), (void *)node))
		return 0;
	for (int i = 0; i < MOST_PIVOTS; i++) {
		if (i >= count || !at->pivots[i] || index <= at->pivots[i])
			break;
		found = i + 1;
	}
	bpf_probe_read_kernel(&slot, sizeof(slot), (void *)(slots + found * sizeof(__u64)));
	return slot;
}

/* Address of the current task's mapping that holds an address; 0: none, or it could not be found. */
__noinline __u64 find_vma(__u32 slot, __u64 address)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	__u64 entry;

	if (!bpf_core_field_exists(struct mm_struct, mm_mt) || !scratch)
		return 0;
	entry = (__u64)BPF_CORE_READ(current_task(), mm, mm_mt.ma_root);
	if ((entry & MAPLE_INTERNAL_MASK) != MAPLE_INTERNAL)
		return 0;
	for (int level = 0; level < MOST_LEVELS; level++) {
		__u32 type = entry >> MAPLE_TYPE_SHIFT & MAPLE_TYPE_MASK;

		if (type < MAPLE_LEAF_64 || type > MAPLE_ARANGE_64)
			return 0;
		entry = maple_slot(&scratch->unwind, entry, type, address);
		if (type == MAPLE_LEAF_64 || !entry)
			return entry;
	}
	return 0;
}

/* The file that a mapping shows, and from where; all 0: the vDSO. False: neither. */
static __always_inline bool file_of(struct vm_area_struct *vma, __u64 vdso, struct unwind_file *key)
{
	struct file *file = BPF_CORE_READ(vma, vm_file);
	struct inode *inode;

	__builtin_memset(key, 0, sizeof(*key));
	if (!file)
		return BPF_CORE_READ(vma, vm_start) == vdso;
	inode = BPF_CORE_READ(file, f_inode);
	key->inode = BPF_CORE_READ(inode, i_ino);
	key->device = BPF_CORE_READ(inode, i_sb, s_dev);
	key->changed_ns = changed_ns(inode);
	key->offset = BPF_CORE_READ(vma, vm_pgoff) * PAGE_BYTES;
	return true;
}

/* Notes a mapping of the current task, and its file's table if there is one; 0: there is no scratch. */
__noinline __u32 note_mapping(__u32 slot, __u64 address)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	struct mm_struct *mm = BPF_CORE_READ(current_task(), mm);
	struct vm_area_struct *vma = (void *)address;
	struct unwind_file_table *table;
	struct unwind_mapping *own;
	struct unwind *at;

	if (!scratch)
		return 0;
	at = &scratch->unwind;
	own = &at->unlisted[at->met++ & (MAX_UNLISTED - 1)];
	own->begin = own->end = own->pages = 0;
	if (!vma || BPF_CORE_READ(vma, vm_mm) != mm)
		return 1;
	own->begin = BPF_CORE_READ(vma, vm_start);
	own->end = BPF_CORE_READ(vma, vm_end);
	if (!file_of(vma, (__u64)BPF_CORE_READ(mm, context.vdso), &at->file))
		return 1;
	table = bpf_map_lookup_elem(&unwind_files, &at->file);
	if (!table)
		return 1;
	own->shift = own->begin + table->shift;
	own->pages_at = table->pages_at;
	own->pages = table->pages;
	at->has_tables = 1;
	return 1;
}

/* The mapping of an address among those that this walk has met. */
static __always_inline struct unwind_mapping *noted_mapping(struct unwind *at, __u64 address)
{
	for (int i = 0; i < MAX_UNLISTED && i < at->met; i++)
		if (at->unlisted[i].begin <= address && address < at->unlisted[i].end)
			return &at->unlisted[i];
	return NULL;
}

/* Index of the rule for an address by the kernel's own mappings; 0: none covers it. */
static __always_inline __u32 search_unlisted(__u32 slot, struct unwind *at, __u64 pc)
{
	struct unwind_mapping *own = noted_mapping(at, pc);
	__u64 offset;

	/* Two functions, one after the other: below each other they take more stack than there is. */
	if (!own && note_mapping(slot, find_vma(slot, pc)))
		own = noted_mapping(at, pc);
	if (!own)
		return 0;
	offset = pc - own->shift;
	if (offset >> PAGE_SHIFT_OF_INDEX >= own->pages)
		return 0;
	return find_rule(own->pages_at, offset);
}

/* True where the kernel keeps mappings in a tree that can be read. */
static __always_inline bool can_find_mappings(void)
{
	return bpf_core_field_exists(struct mm_struct, mm_mt);
}

#endif
