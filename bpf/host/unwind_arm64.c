/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* unwind_arm64.c: the stack unwinder of arm64, which walks the same memory here as there. */
#define HOST_IS_ARM64

/* Registers in which the ABI passes arguments to a system call. */
#define PT_REGS_PARM1_SYSCALL(from) ((from)->regs[0])
#define PT_REGS_PARM2_SYSCALL(from) ((from)->regs[1])
#define PT_REGS_PARM3_SYSCALL(from) ((from)->regs[2])
#define PT_REGS_PARM4_SYSCALL(from) ((from)->regs[3])
#define PT_REGS_PARM5_SYSCALL(from) ((from)->regs[4])
#define PT_REGS_PARM6_SYSCALL(from) ((from)->regs[5])
#define PT_REGS_PARM1_CORE_SYSCALL(from) HOST_READ1(from, regs[0])
#define PT_REGS_PARM2_CORE_SYSCALL(from) HOST_READ1(from, regs[1])
#define PT_REGS_PARM3_CORE_SYSCALL(from) HOST_READ1(from, regs[2])
#define PT_REGS_PARM4_CORE_SYSCALL(from) HOST_READ1(from, regs[3])
#define PT_REGS_PARM5_CORE_SYSCALL(from) HOST_READ1(from, regs[4])
#define PT_REGS_PARM6_CORE_SYSCALL(from) HOST_READ1(from, regs[5])

#include "unwind.c"
