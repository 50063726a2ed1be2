/* SPDX-License-Identifier: MIT */
/* call_locks.bpf.h: locks that threads wait for in system calls of their own: those of files, and semaphores of System V.
 *
 * Such a wait is followed like one on a futex. The kernel knows more of it: which file, and of most locks who has them.
 */
#ifndef __CALL_LOCKS_BPF_H__
#define __CALL_LOCKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "file_lists.bpf.h"
#include "futex_call.bpf.h"
#include "futex_state.bpf.h"
#include "lock_holders.bpf.h"
#include "waits.bpf.h"

/* include/uapi/asm-generic/fcntl.h, of 64-bit programs. */
#define F_SETLKW 7
#define F_OFD_SETLKW 38
#define LOCK_SH 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ipc_namespace___numbered {
	struct ns_common ns;
};
struct nsproxy___ipc {
	struct ipc_namespace___numbered *ipc_ns;
};
struct task_struct___namespaces {
	struct nsproxy___ipc *nsproxy;
};
#pragma clang attribute pop

static __always_inline bool is_call_lock(const struct futex_call *call)
{
	return call->operation >= CALL_FLOCK && call->operation <= CALL_SYSV_SEMAPHORE;
}

/* The lock that a call is for; FUTEX_NONE: none, or it does not wait. */
static __always_inline __u8 call_lock_kind(__u64 number, __u64 command)
{
	if (number == SYSCALL_FLOCK)
		return CALL_FLOCK;
	if (number == SYSCALL_SEMOP || number == SYSCALL_SEMTIMEDOP)
		return CALL_SYSV_SEMAPHORE;
	if (number != SYSCALL_FCNTL)
		return FUTEX_NONE;
	if ((__u32)command == F_SETLKW)
		return CALL_POSIX_LOCK;
	return (__u32)command == F_OFD_SETLKW ? CALL_OFD_LOCK : FUTEX_NONE;
}

/* The lock that `task`, asleep in a system call, waits for. Its identity is in the call's addresses: a file's inode and device; a
 * semaphore's set and namespace.
 */
static __noinline bool call_lock_of(struct futex_call *call, struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct task_struct___namespaces *named = (void *)task;
	struct call_arguments from;
	struct inode *inode;
	struct file *file;

	if (saved_is_compat(regs))
		return false;
	arguments_of(regs, false, &from);
	call->operation = call_lock_kind(saved_syscall_number(regs), from.args[1]);
	if (call->operation == FUTEX_NONE)
		return false;
	if (call->operation == CALL_SYSV_SEMAPHORE) {
		call->address = (__u32)from.args[0];
		call->address2 = BPF_CORE_READ(named, nsproxy, ipc_ns, ns.inum);
		return true;
	}
	call->value = from.args[0];
	file = open_file(task, call->value);
	inode = BPF_CORE_READ(file, f_inode);
	call->address = BPF_CORE_READ(inode, i_ino);
	call->address2 = BPF_CORE_READ(inode, i_sb, s_dev);
	return true;
}

static __always_inline bool is_lock_call(__u64 number)
{
	return number == SYSCALL_FLOCK || number == SYSCALL_FCNTL || number == SYSCALL_SEMOP || number == SYSCALL_SEMTIMEDOP;
}

/* A process that has ended has left the lock to those who share its open file, and its number to others. */
static __always_inline bool still_has(struct task_struct *task, const struct held_file_lock *held, bool is_flock)
{
	__u64 files = (__u64)BPF_CORE_READ(task, files);

	if (task->flags & PF_EXITING)
		return false;
	return is_flock ? has_open(files, (__u64)held->file) : files == held->owner;
}

/* The process that a file's lock names. It says nothing of threads: where there are several, none of them is known to have it. */
static __always_inline void note_process(struct lock_holder *holder, const struct held_file_lock *held, bool is_flock)
{
	struct task_struct *task;
	bool is_alone;

	if (held->pid <= 0 || !bpf_ksym_exists(bpf_task_from_pid))
		return;
	task = bpf_task_from_pid(held->pid);
	if (!task)
		return;
	if (still_has(task, held, is_flock)) {
		is_alone = BPF_CORE_READ(task, signal, nr_threads) == 1;
		note_holder(holder, task, held->is_shared ? HOLDER_READER : HOLDER_OWNER, config.holder_stacks && is_alone);
		if (!is_alone) {
			holder->pid = 0;
			holder->state = HOLDER_STATES;
		}
	}
	bpf_task_release(task);
}

/* The waiter leaves its CPU, and is current, or waits in flock(2): its file's list of locks says now what it waits for. */
static __noinline int find_call_holder(struct futex_wait *futex, struct task_struct *waiter)
{
	const struct futex_call *call = &futex->call;
	struct file_lock_request request = {};
	struct held_file_lock held = {};
	struct call_arguments from;
	void *entry;

	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	if (call->operation == CALL_SYSV_SEMAPHORE)
		return 0;
	arguments_of(user_regs_of(waiter), false, &from);
	request.file = open_file(waiter, call->value);
	request.owner = call->operation == CALL_POSIX_LOCK ? (__u64)BPF_CORE_READ(waiter, files) : (__u64)request.file;
	request.is_flock = call->operation == CALL_FLOCK;
	request.end = LAST_BYTE;
	request.is_shared = from.args[1] & LOCK_SH;
	if (!request.is_flock && !read_range(&request, from.args[2]))
		return 0;
	futex->wait.mode = request.is_shared ? WAIT_SHARED : WAIT_EXCLUSIVE;
	entry = (void *)lock_in_the_way((__u64)request.file, request.owner, request.start, request.end,
					(request.is_flock ? FILE_LOCK_IS_FLOCK : 0) |
						(request.is_shared ? FILE_LOCK_IS_SHARED : 0));
	if (!entry)
		return 0;
	read_file_lock(&held, entry);
	note_process(&futex->wait.holder, &held, request.is_flock);
	return 0;
}

/* Once per lock: its file's path. */
static __noinline int describe_call_lock(struct futex_wait *futex, struct task_struct *task)
{
	struct lock_id *lock = &futex->wait.lock;
	struct inode *inode;
	struct file *file;

	if (lock->class == CALL_SYSV_SEMAPHORE || bpf_map_lookup_elem(&lock_files, lock))
		return 0;
	file = open_file(task, futex->call.value);
	inode = BPF_CORE_READ(file, f_inode);
	/* Another thread may have closed it, and opened something else. */
	if (BPF_CORE_READ(inode, i_ino) != lock->address || BPF_CORE_READ(inode, i_sb, s_dev) != lock->object)
		return 0;
	return describe_file((__u64)file, lock->address, lock->object, lock->class);
}

#endif
