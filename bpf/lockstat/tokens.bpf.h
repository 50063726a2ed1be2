/* SPDX-License-Identifier: MIT */
/* tokens.bpf.h: waits for what others leave for whoever comes: the count of an eventfd, and a byte of a pipe that its readers write back
 * to, as make's job server has one for each job that may run.
 */
#ifndef __TOKENS_BPF_H__
#define __TOKENS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "futex_call.bpf.h"
#include "lock_tables.bpf.h"
#include "polls.bpf.h"
#include "waits.bpf.h"

#define NO_DESCRIPTOR (~0U)
/* include/linux/fs.h */
#define FMODE_WRITE 2
/* Bytes that a pipe's token is read by, and an eventfd's count. Other reads are most of all, and not looked at further. */
#define TOKEN_BYTES 1
#define COUNT_BYTES 8

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Numbered since b556db17b0e7 (5.2). */
struct eventfd_ctx {
	int id;
};
struct file___opened {
	__u32 f_mode;
};
#pragma clang attribute pop

/* The descriptor that a call waits for until there is something to read. Memory can be read of a process that is current only. */
static __always_inline __u32 awaited(struct task_struct *task, __u64 number, const struct call_arguments *from, bool is_current)
{
	__u32 polled;

	if (number == SYSCALL_READ)
		return from->args[2] == TOKEN_BYTES || from->args[2] == COUNT_BYTES ? from->args[0] : NO_DESCRIPTOR;
	polled = is_current ? polled_in_call(task, number, from, false) : 0;
	return polled && !(polled & (POLLS_OTHER | POLLS_OUTPUT)) ? polled - 1 : NO_DESCRIPTOR;
}

static __always_inline bool is_open_for_writing(struct file *file)
{
	struct file___opened *opened = (void *)file;

	return BPF_CORE_READ(opened, f_mode) & FMODE_WRITE;
}

/* Both ends of a pipe that was made for this are a process's own, under numbers in a row; or its one descriptor is both. */
static __always_inline bool is_written_back(struct task_struct *task, struct file *file, __u32 fd)
{
	struct file *next;

	if (is_open_for_writing(file))
		return true;
	next = open_file(task, fd + 1);
	return BPF_CORE_READ(next, f_inode) == BPF_CORE_READ(file, f_inode) && is_open_for_writing(next);
}

/* True where `task`, asleep or about to be, waits for such a thing: `lock` is that then. */
static __noinline bool token_of(struct lock_id *lock, struct task_struct *task, bool is_current)
{
	const struct pt_regs *regs = user_regs_of(task);
	__u64 number = saved_syscall_number(regs);
	struct call_arguments from;
	struct eventfd_ctx *eventfd;
	struct file *file;
	__u8 type;
	__u32 fd;

	if (saved_is_compat(regs))
		return false;
	arguments_of(regs, false, &from);
	fd = awaited(task, number, &from, is_current);
	if (fd == NO_DESCRIPTOR)
		return false;
	file = open_file(task, fd);
	type = file_type_of(file);
	__builtin_memset(lock, 0, sizeof(*lock));
	lock->side = LOCK_USER;
	if (!type && number == SYSCALL_READ && anonymous_type_of(file) == FILE_EVENTFD) {
		eventfd = BPF_CORE_READ(file, private_data);
		lock->class = CALL_EVENTFD;
		lock->address = (__u32)BPF_CORE_READ(eventfd, id);
		return true;
	}
	if (type != TYPE_FIFO || (number == SYSCALL_READ && from.args[2] != TOKEN_BYTES) || !is_written_back(task, file, fd))
		return false;
	lock->class = CALL_TOKEN;
	lock->address = BPF_CORE_READ(file, f_inode, i_ino);
	lock->object = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	return true;
}

/* True where the task that is current leaves something for others. */
static __always_inline bool gives_token(void)
{
	return saved_syscall_number(user_regs_of(current_task())) == SYSCALL_WRITE;
}

#endif
