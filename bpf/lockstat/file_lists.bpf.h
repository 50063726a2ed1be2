/* SPDX-License-Identifier: MIT */
/* file_lists.bpf.h: what the kernel knows of a locked file: its locks, and its path. */
#ifndef __FILE_LISTS_BPF_H__
#define __FILE_LISTS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "lock_tables.bpf.h"
#include "maps.bpf.h"
#include "paths.bpf.h"

/* Locks of a file that are looked at. */
#define MAX_LISTED_LOCKS 128
#define LAST_BYTE 0x7fffffffffffffffLL
/* include/uapi/asm-generic/fcntl.h; the kernel's locks of any sort are of these types. */
#define F_RDLCK 0
#define SEEK_CUR 1
#define SEEK_END 2

#define MAX_LOCK_FILES 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct file_lock_context {
	struct list_head flc_flock;
	struct list_head flc_posix;
};
struct inode___locked {
	struct file_lock_context *i_flctx;
	s64 i_size;
};
struct file___positioned {
	s64 f_pos;
};
struct file_lock_core {
	struct list_head flc_list;
	void *flc_owner;
	unsigned char flc_type;
	pid_t flc_pid;
	struct file *flc_file;
};
struct file_lock {
	struct file_lock_core c;
	s64 fl_start;
	s64 fl_end;
};
/* Before 6.9. */
struct file_lock___flat {
	struct list_head fl_list;
	void *fl_owner;
	unsigned char fl_type;
	unsigned int fl_pid;
	struct file *fl_file;
	s64 fl_start;
	s64 fl_end;
};
#pragma clang attribute pop

/* The range that fcntl(2) is told; UAPI. */
struct user_flock {
	__s16 l_type;
	__s16 l_whence;
	__u32 pad;
	__s64 l_start;
	__s64 l_len;
};

struct file_lock_request {
	struct file *file;
	/* Owner of a lock of fcntl's: a table of descriptors or an open file. */
	__u64 owner;
	/* Both included. */
	__s64 start;
	__s64 end;
	bool is_flock;
	bool is_shared;
};

/* One that is in its way. */
struct held_file_lock {
	__u64 owner;
	struct file *file;
	__s64 start;
	__s64 end;
	/* Process that asked for it, in the initial namespace; not positive: nobody knows. */
	__s32 pid;
	bool is_shared;
};

/* Files that found no room: they have no paths. */
__u64 lock_files_full = 0;

/* lock → where its file is */
MAP(HASH, lock_files, struct lock_id, struct file_path, MAX_LOCK_FILES);

/* The range that fcntl(2)'s caller, which is current, asks for; false: that is gone. */
static __always_inline bool read_range(struct file_lock_request *request, __u64 address)
{
	struct file *file = request->file;
	struct inode___locked *inode = (void *)BPF_CORE_READ(file, f_inode);
	struct file___positioned *positioned = (void *)file;
	struct user_flock asked;

	if (bpf_probe_read_user(&asked, sizeof(asked), (void *)address))
		return false;
	request->is_shared = asked.l_type == F_RDLCK;
	request->start = asked.l_start;
	if (asked.l_whence == SEEK_CUR)
		request->start += BPF_CORE_READ(positioned, f_pos);
	if (asked.l_whence == SEEK_END)
		request->start += BPF_CORE_READ(inode, i_size);
	request->end = LAST_BYTE;
	if (asked.l_len > 0) {
		request->end = request->start + asked.l_len - 1;
	} else if (asked.l_len < 0) {
		request->end = request->start - 1;
		request->start += asked.l_len;
	}
	return true;
}

static __always_inline void read_file_lock(struct held_file_lock *held, void *entry)
{
	struct file_lock___flat *flat = NULL;
	struct file_lock *lock = NULL;

	if (bpf_core_type_exists(struct file_lock_core)) {
		lock = entry - bpf_core_field_offset(lock->c) - bpf_core_field_offset(lock->c.flc_list);
		held->owner = (__u64)BPF_CORE_READ(lock, c.flc_owner);
		held->file = BPF_CORE_READ(lock, c.flc_file);
		held->start = BPF_CORE_READ(lock, fl_start);
		held->end = BPF_CORE_READ(lock, fl_end);
		held->pid = BPF_CORE_READ(lock, c.flc_pid);
		held->is_shared = BPF_CORE_READ(lock, c.flc_type) == F_RDLCK;
		return;
	}
	flat = entry - bpf_core_field_offset(flat->fl_list);
	held->owner = (__u64)BPF_CORE_READ(flat, fl_owner);
	held->file = BPF_CORE_READ(flat, fl_file);
	held->start = BPF_CORE_READ(flat, fl_start);
	held->end = BPF_CORE_READ(flat, fl_end);
	held->pid = (__s32)BPF_CORE_READ(flat, fl_pid);
	held->is_shared = BPF_CORE_READ(flat, fl_type) == F_RDLCK;
}

#define FILE_LOCK_IS_FLOCK (1U << 0)
#define FILE_LOCK_IS_SHARED (1U << 1)

/* 1 where a listed lock keeps a request from being granted: of an open file, where it is flock(2)'s, else of an owner of ranges.
 * Not static: the verifier goes through it once, not for each caller and each turn of a loop.
 */
__noinline int is_in_the_way(__u64 entry, __u64 of, __s64 start, __s64 end, __u32 how)
{
	struct held_file_lock held = {};

	read_file_lock(&held, (void *)entry);
	if (how & FILE_LOCK_IS_SHARED && held.is_shared)
		return 0;
	if (how & FILE_LOCK_IS_FLOCK)
		return (__u64)held.file != of;
	return held.owner != of && held.start <= end && start <= held.end;
}

/* The first lock in the way of a request, of an open file by its address: its entry in the list; 0: there is none. `how`:
 * FILE_LOCK_IS_….
 */
__noinline __u64 lock_in_the_way(__u64 file, __u64 owner, __s64 start, __s64 end, __u32 how)
{
	struct file *open = (struct file *)file;
	struct inode___locked *inode = (void *)BPF_CORE_READ(open, f_inode);
	struct file_lock_context *locks = BPF_CORE_READ(inode, i_flctx);
	__u64 of = how & FILE_LOCK_IS_FLOCK ? file : owner;
	struct list_head *head, *at;

	if (!locks)
		return 0;
	head = how & FILE_LOCK_IS_FLOCK ? &locks->flc_flock : &locks->flc_posix;
	at = BPF_CORE_READ(head, next);
	for (int i = 0; i < MAX_LISTED_LOCKS && at && at != head; i++) {
		if (is_in_the_way((__u64)at, of, start, end, how))
			return (__u64)at;
		at = BPF_CORE_READ(at, next);
	}
	return 0;
}

/* Descriptors of a process that are looked at, and how many of them at once: tables are made of words of bits. */
#define MAX_DESCRIPTORS 256
#define SOME_DESCRIPTORS 16

/* 1 where a process's table of descriptors has an open file, both by address. Not static, as above. */
__noinline int has_open(__u64 table_of, __u64 file)
{
	struct files_struct *of = (struct files_struct *)table_of;
	struct fdtable *table = BPF_CORE_READ(of, fdt);
	__u64 files = (__u64)BPF_CORE_READ(table, fd), some[SOME_DESCRIPTORS];
	__u32 descriptors = BPF_CORE_READ(table, max_fds);

	for (__u32 from = 0; from < MAX_DESCRIPTORS && from < descriptors; from += SOME_DESCRIPTORS) {
		if (bpf_probe_read_kernel(some, sizeof(some), (void *)(files + from * sizeof(some[0]))))
			return 0;
		for (int i = 0; i < SOME_DESCRIPTORS; i++)
			if (some[i] == file)
				return 1;
	}
	return 0;
}

/* Once for each lock, of an open file by its address. Not static, as above. */
__noinline int describe_file(__u64 file, __u64 inode, __u64 device, __u32 class)
{
	struct lock_id lock = { .address = inode, .object = device, .side = LOCK_USER, .class = class };
	struct file_path *known;

	bpf_map_update_elem(&lock_files, &lock, (const void *)&no_file_path, BPF_NOEXIST);
	known = bpf_map_lookup_elem(&lock_files, &lock);
	if (!known) {
		__sync_fetch_and_add(&lock_files_full, 1);
		return 0;
	}
	read_path(known, (struct file *)file);
	return 0;
}

#endif
