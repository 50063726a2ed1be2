/* SPDX-License-Identifier: MIT */
/* registers.h: where a thread's registers are, for each architecture; what to do with them is in registers.bpf.h.
 *
 * All that differs by architecture lies in machine/: this header, registers.bpf.h and unwind_machine.bpf.h choose.
 */
#ifndef __REGISTERS_H__
#define __REGISTERS_H__

#if defined(__TARGET_ARCH_x86)
#include "machine/x86.h"
#elif defined(__TARGET_ARCH_arm64)
#include "machine/arm64.h"
#else
#error "registers.h: no such architecture; -D__TARGET_ARCH_x86 or -D__TARGET_ARCH_arm64"
#endif

#endif
