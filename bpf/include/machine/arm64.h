/* SPDX-License-Identifier: MIT */
/* arm64.h: registers of arm64, as the kernel saves them. */
#ifndef __MACHINE_ARM64_H__
#define __MACHINE_ARM64_H__

/* With pages of 4 KiB or 16 KiB, and without KASAN. */
#define KERNEL_STACK_BYTES 16384
/* A call leaves nothing on the stack. */
#define RETURN_BYTES 0

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

/* The fields of user_pt_regs are in a union with fields of these names. */
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

/* Registers beside pc, sp and x29 that a walk of a user stack follows. */
struct followed_registers {
	/* x30 of a frame that was not called yet from this walk's view: of the leaf, or of what a signal interrupted; else 0. */
	__u64 lr;
	/* sp is not known, but no lower than this: frame records may lie anywhere in their frames. */
	__u64 sp_is_bound;
};

#endif
