/* SPDX-License-Identifier: MIT */
/* registers.bpf.h: a thread's user registers, and what it calls, under the same names on every architecture. */
#ifndef __REGISTERS_BPF_H__
#define __REGISTERS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "machine/calls.h"

#if defined(__TARGET_ARCH_x86)
#include "machine/x86.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "machine/arm64.bpf.h"
#endif

/* Of a native call, from a pointer that the verifier knows: a helper call for each register would cost 70 ns in all. */
static __always_inline void native_arguments_here(const struct pt_regs *regs, struct call_arguments *to)
{
	to->args[0] = PT_REGS_PARM1_SYSCALL(regs);
	to->args[1] = PT_REGS_PARM2_SYSCALL(regs);
	to->args[2] = PT_REGS_PARM3_SYSCALL(regs);
	to->args[3] = PT_REGS_PARM4_SYSCALL(regs);
	to->args[4] = PT_REGS_PARM5_SYSCALL(regs);
	to->args[5] = PT_REGS_PARM6_SYSCALL(regs);
}

/* Of a native call. */
static __always_inline void native_arguments(const struct pt_regs *regs, struct call_arguments *to)
{
	to->args[0] = PT_REGS_PARM1_CORE_SYSCALL(regs);
	to->args[1] = PT_REGS_PARM2_CORE_SYSCALL(regs);
	to->args[2] = PT_REGS_PARM3_CORE_SYSCALL(regs);
	to->args[3] = PT_REGS_PARM4_CORE_SYSCALL(regs);
	to->args[4] = PT_REGS_PARM5_CORE_SYSCALL(regs);
	to->args[5] = PT_REGS_PARM6_CORE_SYSCALL(regs);
}

/* The call's arguments as its ABI passes them, from what user_regs_of() gave; their registers keep them until it ends. */
static __always_inline void arguments_of(const struct pt_regs *regs, bool compat, struct call_arguments *to)
{
	if (compat)
		compat_arguments(regs, to);
	else if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		native_arguments_here(regs, to);
	else
		native_arguments(regs, to);
}

#endif
