/* SPDX-License-Identifier: MIT */
/* x86.h: registers of x86-64, as the kernel saves them. */
#ifndef __MACHINE_X86_H__
#define __MACHINE_X86_H__

/* KASAN doubles it. */
#define KERNEL_STACK_BYTES 16384
/* A call leaves its return address on the stack, and the return takes it away, bytes. */
#define RETURN_BYTES 8

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_struct {
	unsigned long sp;
	unsigned long fsbase;
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

/* Registers beside ip, sp and bp that a walk of a user stack follows. */
struct followed_registers {
	/* rbx, if the frame that was just left had kept or saved it, or a signal interrupted this one; else 0. */
	__u64 bx;
};

#endif
