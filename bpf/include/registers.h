/* SPDX-License-Identifier: MIT */
/* registers.h: where a thread's registers are, for each architecture; what to do with them is in registers.bpf.h.
 *
 * The arm64 branch compiles (bpf/tests/arm64.rs) and has never run.
 */
#ifndef __REGISTERS_H__
#define __REGISTERS_H__

#if defined(__TARGET_ARCH_x86)

/* KASAN doubles it. */
#define KERNEL_STACK_BYTES 16384

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_struct {
	unsigned long sp;
};

struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long flags;
	unsigned long sp;
	unsigned long ss;
};
#pragma clang attribute pop

/* UAPI, fixed layout: not relocated. */
struct user_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	unsigned long ip, cs, flags, sp, ss;
};

#elif defined(__TARGET_ARCH_arm64)

/* With pages of 4 KiB or 16 KiB, and without KASAN. */
#define KERNEL_STACK_BYTES 16384

/* UAPI, fixed layout; <bpf/bpf_tracing.h> takes arguments from it. */
struct user_pt_regs {
	unsigned long long regs[31];
	unsigned long long sp;
	unsigned long long pc;
	unsigned long long pstate;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct cpu_context {
	unsigned long sp;
};

struct thread_struct {
	struct cpu_context cpu_context;
};

/* What user_pt_regs has is in a union with fields of these names. */
struct pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
	u64 orig_x0;
	__s32 syscallno;
};
#pragma clang attribute pop

/* By the name that it has for every architecture here. */
#define user_regs user_pt_regs

#else
#error "registers.h: no such architecture; -D__TARGET_ARCH_x86 or -D__TARGET_ARCH_arm64"
#endif

#endif
