/* SPDX-License-Identifier: MIT */
/* arm64.bpf.h: a thread's user registers on arm64, and what it calls. */
#ifndef __MACHINE_ARM64_BPF_H__
#define __MACHINE_ARM64_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "machine/calls.h"

/* Compat calls are those of ARM programs. */
#define SYSCALL_EPOLL_PWAIT 22
#define SYSCALL_FCNTL 25
#define SYSCALL_FLOCK 32
#define SYSCALL_READ 63
#define SYSCALL_WRITE 64
#define SYSCALL_PSELECT6 72
#define SYSCALL_PPOLL 73
#define SYSCALL_SYNC 81
#define SYSCALL_FSYNC 82
#define SYSCALL_FDATASYNC 83
#define SYSCALL_SYNC_FILE_RANGE 84
#define SYSCALL_EXIT 93
#define SYSCALL_FUTEX 98
#define SYSCALL_NANOSLEEP 101
#define SYSCALL_CLOCK_NANOSLEEP 115
#define SYSCALL_RESTART 128
#define SYSCALL_SEMTIMEDOP 192
#define SYSCALL_SEMOP 193
#define SYSCALL_EXIT_GROUP 94
#define SYSCALL_KILL 129
#define SYSCALL_COMPAT_EXIT_GROUP 248
#define SYSCALL_MSYNC 227
#define SYSCALL_SYNCFS 267
#define SYSCALL_EPOLL_PWAIT2 441

/* thread_info.flags: TIF_SIGPENDING, TIF_NOTIFY_SIGNAL. */
#define SIGNAL_FLAGS (1UL << 0 | 1UL << 6)
/* arch/arm64/include/uapi/asm/ptrace.h */
#define PSR_MODE32_BIT 0x10
#define FRAME_POINTER 29
#define LR 30
/* The stack pointer of an ARM program, as compat_sp. */
#define COMPAT_SP 13

/* struct pt_regs goes on behind what user space may know of it. */
static __always_inline __u64 user_regs_bytes(void)
{
	return bpf_core_type_size(struct pt_regs);
}

static __always_inline __u64 user_ip(const struct user_regs *regs)
{
	return regs->pc;
}

static __always_inline bool user_is_compat(const struct user_regs *regs)
{
	__u64 state = regs->pstate;

	/* A program's context is read by whole words: clang would read the byte with the bit. */
	barrier_var(state);
	return state & PSR_MODE32_BIT;
}

static __always_inline __u64 user_sp(const struct user_regs *regs)
{
	__u64 compat = regs->regs[COMPAT_SP], sp = regs->sp;

	/* Both are read: clang would choose an address and read there, which the verifier refuses of a program's context. */
	barrier_var(compat);
	barrier_var(sp);
	return user_is_compat(regs) ? compat : sp;
}

/* 0 for ARM programs: what their frame pointer is, and what it points to, differs from compiler to compiler. */
static __always_inline __u64 user_fp(const struct user_regs *regs)
{
	return user_is_compat(regs) ? 0 : regs->regs[FRAME_POINTER];
}

/* Address that thread-local data lies around; 0: it is not known here, for the running thread has it in a register. */
static __always_inline __u64 thread_pointer_of(struct task_struct *task)
{
	return 0;
}

static __always_inline __u64 user_lr(const struct user_regs *regs)
{
	return regs->regs[LR];
}

static __always_inline __u64 saved_lr(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, regs[LR]);
}

static __always_inline __u64 syscall_number(const struct pt_regs *regs)
{
	return (__s64)BPF_CORE_READ(regs, syscallno);
}

/* A signal's delivery and an exec forget the number, as forget_syscall() and start_thread_common() say. */
static __always_inline bool goes_on_anywhere(const struct pt_regs *regs, const struct user_regs *copied)
{
	return syscall_number(regs) == -1UL;
}

/* Kernel code is nowhere near the end of the address space, so that kernel_stack_cache.bpf.h cannot tell its
 * addresses from other words: every stack is walked.
 */
static __always_inline __u64 switched_out_sp(struct task_struct *task)
{
	return 0;
}

/* By its DWARF number; 0 for those that unwind rules do not use. */
static __always_inline __u64 register_by_number(const struct user_regs *regs, __u32 number)
{
	return number < 31 ? regs->regs[number] : 0;
}

static __always_inline __u64 saved_ip(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, pc);
}

static __always_inline bool saved_is_compat(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, pstate) & PSR_MODE32_BIT;
}

static __always_inline __u64 saved_sp(const struct pt_regs *regs)
{
	return saved_is_compat(regs) ? BPF_CORE_READ(regs, regs[COMPAT_SP]) : BPF_CORE_READ(regs, sp);
}

static __always_inline __u64 saved_fp(const struct pt_regs *regs)
{
	return saved_is_compat(regs) ? 0 : BPF_CORE_READ(regs, regs[FRAME_POINTER]);
}

/* thread_info.flags: a 32-bit program, which cannot make other calls. */
#define TIF_32BIT (1UL << 22)

static __always_inline bool is_compat_call(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return task->thread_info.flags & TIF_32BIT;
	return BPF_CORE_READ(task, thread_info.flags) & TIF_32BIT;
}

static __always_inline bool saved_goes_on_anywhere(const struct pt_regs *regs)
{
	return syscall_number(regs) == -1UL;
}

static __always_inline __u64 syscall_number_here(const struct pt_regs *regs)
{
	return (__s64)regs->syscallno;
}

static __always_inline void compat_arguments(const struct pt_regs *regs, struct call_arguments *to)
{
	to->args[0] = (__u32)BPF_CORE_READ(regs, orig_x0);
	to->args[1] = (__u32)BPF_CORE_READ(regs, regs[1]);
	to->args[2] = (__u32)BPF_CORE_READ(regs, regs[2]);
	to->args[3] = (__u32)BPF_CORE_READ(regs, regs[3]);
	to->args[4] = (__u32)BPF_CORE_READ(regs, regs[4]);
	to->args[5] = (__u32)BPF_CORE_READ(regs, regs[5]);
}

#endif
