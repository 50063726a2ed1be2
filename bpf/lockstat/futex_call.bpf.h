/* SPDX-License-Identifier: MIT */
/* futex_call.bpf.h: what a thread inside a futex system call asked for, from its saved registers.
 *
 * A call keeps its argument registers until it returns, so they are read where they are needed, not at its entry: hooks at
 * the entry of one system call cost every other one as well (42 ns on the test machine).
 */
#ifndef __FUTEX_CALL_BPF_H__
#define __FUTEX_CALL_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"

/* The same on every architecture; compat calls are those of 32-bit programs. */
#define SYSCALL_COMPAT_RESTART 0
#define SYSCALL_COMPAT_EXIT 1
#define SYSCALL_COMPAT_FUTEX 240
#define SYSCALL_COMPAT_FUTEX_TIME64 422
/* 5.16, and the futex2 calls of 6.7. */
#define SYSCALL_FUTEX_WAITV 449
#define SYSCALL_FUTEX_WAKE 454
#define SYSCALL_FUTEX_WAIT 455
#define SYSCALL_FUTEX_REQUEUE 456

/* include/uapi/linux/futex.h */
enum futex_operation {
	FUTEX_WAIT = 0,
	FUTEX_WAKE = 1,
	FUTEX_REQUEUE = 3,
	FUTEX_CMP_REQUEUE = 4,
	FUTEX_WAKE_OP = 5,
	FUTEX_LOCK_PI = 6,
	FUTEX_UNLOCK_PI = 7,
	FUTEX_WAIT_BITSET = 9,
	FUTEX_WAKE_BITSET = 10,
	FUTEX_WAIT_REQUEUE_PI = 11,
	FUTEX_CMP_REQUEUE_PI = 12,
	FUTEX_LOCK_PI2 = 13,
	/* Ours, for what has a system call of its own. */
	FUTEX2_WAITV = 64,
	FUTEX2_WAIT,
	FUTEX2_WAKE,
	FUTEX2_REQUEUE,
	/* Ours: the end of a thread or process wakes who joins it and who waits for its robust locks. */
	FUTEX_BY_EXIT,
	/* Ours: the second part of a wait that was requeued. */
	FUTEX_REQUEUED,
	/* Ours, and no futexes: see call_locks.bpf.h. */
	CALL_FLOCK = 128,
	CALL_POSIX_LOCK,
	CALL_OFD_LOCK,
	CALL_SYSV_SEMAPHORE,
	/* Ours, too: see tokens.bpf.h. */
	CALL_EVENTFD,
	CALL_TOKEN,
	/* Not a futex call. */
	FUTEX_NONE = 0xff,
};

#define FUTEX_OPERATION_BITS 0x7f
#define FUTEX_PRIVATE_FLAG 0x80
#define FUTEX_CLOCK_REALTIME 0x100
#define FUTEX_WAITV_MAX 128

enum futex_call_flags {
	FUTEX_IS_SHARED = 1 << 0,
	FUTEX_IS_REALTIME = 1 << 1,
	FUTEX_IS_COMPAT = 1 << 2,
	/* It ends by itself after a time. */
	FUTEX_IS_TIMED = 1 << 3,
};

struct futex_call {
	__u64 address;
	/* Where a requeue leads. */
	__u64 address2;
	/* What the word was expected to be. */
	__u32 value;
	__u8 operation;
	__u8 flags;
	__u8 pad[2];
};

/* One of futex_waitv's array; UAPI. */
struct futex_waitv_entry {
	__u64 val;
	__u64 uaddr;
	__u32 flags;
	__u32 reserved;
};

/* The kind of call by its number, not yet its operation: FUTEX_WAIT for any futex(2). */
static __always_inline __u8 futex_kind(__u64 number, bool compat)
{
	if (number == SYSCALL_FUTEX_WAITV)
		return FUTEX2_WAITV;
	if (number == SYSCALL_FUTEX_WAIT)
		return FUTEX2_WAIT;
	if (number == SYSCALL_FUTEX_WAKE)
		return FUTEX2_WAKE;
	if (number == SYSCALL_FUTEX_REQUEUE)
		return FUTEX2_REQUEUE;
	if (compat) {
		if (number == SYSCALL_COMPAT_FUTEX || number == SYSCALL_COMPAT_FUTEX_TIME64)
			return FUTEX_WAIT;
		if (number == SYSCALL_COMPAT_EXIT || number == SYSCALL_COMPAT_EXIT_GROUP)
			return FUTEX_BY_EXIT;
		return FUTEX_NONE;
	}
	if (number == SYSCALL_FUTEX)
		return FUTEX_WAIT;
	if (number == SYSCALL_EXIT || number == SYSCALL_EXIT_GROUP)
		return FUTEX_BY_EXIT;
	return FUTEX_NONE;
}

static __always_inline void decode_futex(struct futex_call *call, const struct call_arguments *from)
{
	__u32 operation = from->args[1];

	call->address = from->args[0];
	call->value = from->args[2];
	call->address2 = from->args[4];
	call->operation = operation & FUTEX_OPERATION_BITS;
	if (!(operation & FUTEX_PRIVATE_FLAG))
		call->flags |= FUTEX_IS_SHARED;
	if (operation & FUTEX_CLOCK_REALTIME)
		call->flags |= FUTEX_IS_REALTIME;
	if (from->args[3])
		call->flags |= FUTEX_IS_TIMED;
}

/* futex_wait(address, value, mask, flags, timeout, clock), futex_wake(address, mask, nr, flags) */
static __always_inline void decode_futex2(struct futex_call *call, const struct call_arguments *from)
{
	call->address = from->args[0];
	if (!(from->args[3] & FUTEX_PRIVATE_FLAG))
		call->flags |= FUTEX_IS_SHARED;
	if (call->operation == FUTEX2_WAIT)
		call->value = from->args[1];
}

/* Element `at` of the array that futex_waitv and futex_requeue take; of a process that is current. */
static __always_inline bool decode_entry(struct futex_call *call, __u64 array, __u32 at)
{
	struct futex_waitv_entry entry = {};

	if (bpf_probe_read_user(&entry, sizeof(entry), (void *)(array + at * sizeof(entry))))
		return false;
	call->address = entry.uaddr;
	call->value = entry.val;
	call->flags &= ~FUTEX_IS_SHARED;
	if (!(entry.flags & FUTEX_PRIVATE_FLAG))
		call->flags |= FUTEX_IS_SHARED;
	return true;
}

/* Which call a thread is in, from what user_regs_of() gave. */
static __always_inline __u64 saved_syscall_number(const struct pt_regs *regs)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return syscall_number_here(regs);
	/* Before 5.15 the verifier knows nothing of that pointer. */
	return syscall_number(regs);
}

/* The futex call, or the end, that `task` is in; FUTEX_NONE: another call or none. Arrays are read if it is current. */
static __always_inline void futex_call_of(struct task_struct *task, bool is_current, struct futex_call *call)
{
	const struct pt_regs *regs = user_regs_of(task);
	bool compat = is_compat_call(task);
	struct call_arguments from;
	struct futex_call second = {};
	__u64 number;

	__builtin_memset(call, 0, sizeof(*call));
	number = saved_syscall_number(regs);
	call->operation = futex_kind(compat ? (__u32)number : number, compat);
	if (call->operation == FUTEX_NONE || call->operation == FUTEX_BY_EXIT)
		return;
	if (compat)
		call->flags |= FUTEX_IS_COMPAT;
	arguments_of(regs, compat, &from);
	if (call->operation == FUTEX_WAIT)
		decode_futex(call, &from);
	else if (call->operation == FUTEX2_WAIT || call->operation == FUTEX2_WAKE)
		decode_futex2(call, &from);
	else if (is_current && decode_entry(call, from.args[0], 0) && call->operation == FUTEX2_REQUEUE &&
		 decode_entry(&second, from.args[0], 1))
		call->address2 = second.address;
}

/* futex_waitv returns which of its futexes was woken. The first one is not known either if the call was found under way. */
static __always_inline void note_woken_entry(struct task_struct *task, struct futex_call *call, long which)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct call_arguments from;

	if (which < 0)
		which = 0;
	if (call->operation != FUTEX2_WAITV || which >= FUTEX_WAITV_MAX)
		return;
	arguments_of(regs, call->flags & FUTEX_IS_COMPAT, &from);
	decode_entry(call, from.args[0], which);
}

static __always_inline bool is_futex_wait(const struct futex_call *call)
{
	switch (call->operation) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX2_WAIT:
	case FUTEX2_WAITV:
		return true;
	default:
		return false;
	}
}

/* Whose waiter spins before it sleeps, or instead. */
static __always_inline bool is_pi_operation(__u8 operation)
{
	return operation == FUTEX_LOCK_PI || operation == FUTEX_LOCK_PI2;
}

static __always_inline bool is_pi_wait(const struct futex_call *call)
{
	return is_pi_operation(call->operation);
}

static __always_inline bool is_futex_requeue(const struct futex_call *call)
{
	return call->operation == FUTEX_REQUEUE || call->operation == FUTEX_CMP_REQUEUE ||
	       call->operation == FUTEX_CMP_REQUEUE_PI || call->operation == FUTEX2_REQUEUE;
}

/* Whether it may end others' waits. */
static __always_inline bool is_futex_wake(const struct futex_call *call)
{
	return call->operation != FUTEX_NONE && !is_futex_wait(call);
}

#endif
