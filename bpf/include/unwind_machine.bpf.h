/* SPDX-License-Identifier: MIT */
/* unwind_machine.bpf.h: what differs by architecture in a step from a user frame to its caller.
 *
 * Each architecture has these:
 *
 * - begin_walk, forget_registers, follow_frame_record: what is known beside ip, sp and bp, at the begin and after steps
 * - known_register, cfa_by_sp, leads_on: which frame a rule gives
 * - leave_frame, step_out_of_signal: what the caller had in its registers
 * - rule_by_code: the rule that the instructions give where the tables have none
 */
#ifndef __UNWIND_MACHINE_BPF_H__
#define __UNWIND_MACHINE_BPF_H__

#if defined(__TARGET_ARCH_x86)
#include "machine/x86_step.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "machine/arm64_step.bpf.h"
#endif

#endif
