/* SPDX-License-Identifier: MIT */
/* x86.bpf.h: a thread's user registers on x86-64, and what it calls. */
#ifndef __MACHINE_X86_BPF_H__
#define __MACHINE_X86_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "machine/calls.h"

/* System calls whose numbers differ; compat calls are those of i386 programs. */
#define SYSCALL_READ 0
#define SYSCALL_WRITE 1
#define SYSCALL_POLL 7
#define SYSCALL_SELECT 23
#define SYSCALL_MSYNC 26
#define SYSCALL_NANOSLEEP 35
#define SYSCALL_EXIT 60
#define SYSCALL_KILL 62
#define SYSCALL_SEMOP 65
#define SYSCALL_FCNTL 72
#define SYSCALL_FLOCK 73
#define SYSCALL_FSYNC 74
#define SYSCALL_FDATASYNC 75
#define SYSCALL_SYNC 162
#define SYSCALL_FUTEX 202
#define SYSCALL_RESTART 219
#define SYSCALL_SEMTIMEDOP 220
#define SYSCALL_CLOCK_NANOSLEEP 230
#define SYSCALL_EXIT_GROUP 231
#define SYSCALL_EPOLL_WAIT 232
#define SYSCALL_PSELECT6 270
#define SYSCALL_PPOLL 271
#define SYSCALL_SYNC_FILE_RANGE 277
#define SYSCALL_EPOLL_PWAIT 281
#define SYSCALL_SYNCFS 306
#define SYSCALL_EPOLL_PWAIT2 441
#define SYSCALL_COMPAT_EXIT_GROUP 252

/* thread_info.flags: TIF_SIGPENDING, and since 8ba62d37949e (5.11) TIF_NOTIFY_SIGNAL. */
#define SIGNAL_FLAGS (1UL << 2 | 1UL << 17)
/* User code segment of 32-bit programs. */
#define USER32_CS 0x23
/* r15 to r12 and rbx, saved by __switch_to_asm: leftovers of whatever the code did last. */
#define SAVED_REGISTERS 5

/* At the top of the kernel stack. */
static __always_inline __u64 user_regs_bytes(void)
{
	return sizeof(struct user_regs);
}

static __always_inline __u64 user_ip(const struct user_regs *regs)
{
	return regs->ip;
}

static __always_inline __u64 user_sp(const struct user_regs *regs)
{
	return regs->sp;
}

static __always_inline __u64 user_fp(const struct user_regs *regs)
{
	return regs->bp;
}

/* Address that thread-local data lies around. */
static __always_inline __u64 thread_pointer_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.fsbase);
}

/* Calls leave the return address on the stack. */
static __always_inline __u64 user_lr(const struct user_regs *regs)
{
	return 0;
}

static __always_inline __u64 saved_lr(const struct pt_regs *regs)
{
	return 0;
}

/* True if of a 32-bit program. */
static __always_inline bool user_is_compat(const struct user_regs *regs)
{
	return (__u16)regs->cs == USER32_CS;
}

/* -1 after a fault or an interrupt. */
static __always_inline __u64 syscall_number(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, orig_ax);
}

/* True if a thread in the kernel will go on at any instruction, and not behind the one that made a system call.
 *
 * orig_ax is -1 for faults and interrupts. A signal's delivery and an exec keep the number of the system call that they
 * end, but the registers are already those of the handler's or the program's first instruction: the byte before it belongs
 * to another function. SYSCALL leaves the return address in cx too, so there the two differ. (With FRED it does not: the
 * instruction behind the call is looked up then, which has the same rule.)
 */
static __always_inline bool stopped_anywhere(__u64 orig_ax, __u64 ip, __u64 cx)
{
	return orig_ax == -1UL || ip != cx;
}

/* The same of `copied`, which was read from `regs`. */
static __always_inline bool goes_on_anywhere(const struct pt_regs *regs, const struct user_regs *copied)
{
	return stopped_anywhere(copied->orig_ax, copied->ip, copied->cx);
}

/* Lower end of what a switched-out task has on its kernel stack; 0: not known. */
static __always_inline __u64 switched_out_sp(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.sp) + SAVED_REGISTERS * sizeof(__u64);
}

/* By its DWARF number; 0 for those that unwind rules do not use. */
static __always_inline __u64 register_by_number(const struct user_regs *regs, __u32 number)
{
	switch (number) {
	case 0:
		return regs->ax;
	case 1:
		return regs->dx;
	case 2:
		return regs->cx;
	case 3:
		return regs->bx;
	case 4:
		return regs->si;
	case 5:
		return regs->di;
	case 8:
		return regs->r8;
	case 9:
		return regs->r9;
	case 10:
		return regs->r10;
	case 11:
		return regs->r11;
	case 12:
		return regs->r12;
	case 13:
		return regs->r13;
	case 14:
		return regs->r14;
	case 15:
		return regs->r15;
	default:
		return 0;
	}
}

/* Registers in place, where they were saved at the entry into the kernel. */
static __always_inline __u64 saved_ip(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, ip);
}

static __always_inline __u64 saved_sp(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, sp);
}

static __always_inline __u64 saved_fp(const struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, bp);
}

/* thread_info.status: inside a 32-bit system call, however it was made. */
#define TS_COMPAT 0x2

static __always_inline bool is_compat_call(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return task->thread_info.status & TS_COMPAT;
	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT;
}

static __always_inline bool saved_is_compat(const struct pt_regs *regs)
{
	return (__u16)BPF_CORE_READ(regs, cs) == USER32_CS;
}

static __always_inline bool saved_goes_on_anywhere(const struct pt_regs *regs)
{
	return stopped_anywhere(BPF_CORE_READ(regs, orig_ax), BPF_CORE_READ(regs, ip), BPF_CORE_READ(regs, cx));
}

/* Without helpers: for a pointer that the verifier knows, on paths that every switch takes. */
static __always_inline __u64 syscall_number_here(const struct pt_regs *regs)
{
	return regs->orig_ax;
}

static __always_inline void compat_arguments(const struct pt_regs *regs, struct call_arguments *to)
{
	to->args[0] = (__u32)BPF_CORE_READ(regs, bx);
	to->args[1] = (__u32)BPF_CORE_READ(regs, cx);
	to->args[2] = (__u32)BPF_CORE_READ(regs, dx);
	to->args[3] = (__u32)BPF_CORE_READ(regs, si);
	to->args[4] = (__u32)BPF_CORE_READ(regs, di);
	to->args[5] = (__u32)BPF_CORE_READ(regs, bp);
}

#endif
