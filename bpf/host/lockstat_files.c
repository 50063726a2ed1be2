/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_files.c: how lockstat finds the lock that is in a request's way, on this machine, and what a test asks of it. */
#include "vmlinux.h"
#include "host.h"
#include "no_stacks.h"
#include <bpf/bpf_core_read.h>

/* The kernel is one since 6.9. */
static bool host_has_core;
#undef bpf_core_type_exists
#define bpf_core_type_exists(type) host_has_core
#define bpf_core_field_offset(field) ((__u64)(void *)&(field))
#define bpf_probe_read_user(to, bytes, from) (-14)
#include "../lockstat/file_lists.bpf.h"

#define HOST_FILES 4
#define HOST_LOCKS 160

/* Open files of one inode, which is no more than its locks. */
static struct inode___locked host_inode;
static struct file_lock_context host_locks;
static struct file host_files[HOST_FILES];
static struct file_lock host_new[HOST_LOCKS];
static struct file_lock___flat host_old[HOST_LOCKS];
static __u32 host_listed;

static void host_empty(struct list_head *list)
{
	list->next = list->prev = list;
}

void host_begin(bool has_core)
{
	host_has_core = has_core;
	host_listed = 0;
	host_inode.i_flctx = &host_locks;
	host_empty(&host_locks.flc_flock);
	host_empty(&host_locks.flc_posix);
	for (int i = 0; i < HOST_FILES; i++)
		host_files[i].f_inode = (void *)&host_inode;
}

/* Adds a lock behind all others: whether it is flock's, its file's place, owner, first and last byte, process, and type. */
void host_lock(const __u64 lock[7])
{
	struct list_head *list = lock[0] ? &host_locks.flc_flock : &host_locks.flc_posix, *entry;
	struct file_lock *new = &host_new[host_listed];
	struct file_lock___flat *old = &host_old[host_listed++];
	struct file *file = &host_files[lock[1]];

	*new = (struct file_lock){ { .flc_owner = (void *)lock[2], .flc_type = lock[6], .flc_pid = lock[5], .flc_file = file },
				   lock[3],
				   lock[4] };
	*old = (struct file_lock___flat){ .fl_owner = (void *)lock[2], .fl_type = lock[6], .fl_pid = lock[5], .fl_file = file,
					  .fl_start = lock[3], .fl_end = lock[4] };
	entry = host_has_core ? &new->c.flc_list : &old->fl_list;
	entry->prev = list->prev;
	entry->next = list;
	list->prev->next = entry;
	list->prev = entry;
}

/* Twice the process, and 1 if that only reads. A request is its file's place, owner, first and last byte, and how it is made. */
__u64 host_in_the_way(const __u64 request[5])
{
	__u64 entry = lock_in_the_way((__u64)&host_files[request[0]], request[1], request[2], request[3], request[4]);
	struct held_file_lock held = {};

	if (!entry)
		return 0;
	read_file_lock(&held, (void *)entry);
	return held.pid > 0 ? (__u64)held.pid << 1 | held.is_shared : 0;
}

/* A file that never had any lock. */
void host_never_locked(void)
{
	host_inode.i_flctx = NULL;
}
