/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* parameters.h: registers that hold a call's arguments; in front of a tool's programs. They differ between architectures: here they lie
 * behind all others.
 */
#ifndef __HOST_PARAMETERS_H__
#define __HOST_PARAMETERS_H__

#define HOST_PARAMETER(regs, at) (((__u64 *)((regs) + 1))[at])
#define PT_REGS_PARM1_SYSCALL(regs) HOST_PARAMETER(regs, 0)
#define PT_REGS_PARM2_SYSCALL(regs) HOST_PARAMETER(regs, 1)
#define PT_REGS_PARM3_SYSCALL(regs) HOST_PARAMETER(regs, 2)
#define PT_REGS_PARM4_SYSCALL(regs) HOST_PARAMETER(regs, 3)
#define PT_REGS_PARM5_SYSCALL(regs) HOST_PARAMETER(regs, 4)
#define PT_REGS_PARM6_SYSCALL(regs) HOST_PARAMETER(regs, 5)
#define PT_REGS_PARM1_CORE_SYSCALL(regs) HOST_PARAMETER(regs, 0)
#define PT_REGS_PARM2_CORE_SYSCALL(regs) HOST_PARAMETER(regs, 1)
#define PT_REGS_PARM3_CORE_SYSCALL(regs) HOST_PARAMETER(regs, 2)
#include <bpf/bpf_tracing.h>

#endif
