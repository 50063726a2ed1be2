/* SPDX-License-Identifier: MIT */
/* switches.bpf.h: programs for context switches, on kernels that tell the state of who leaves and on those that do not. */
#ifndef __SWITCHES_BPF_H__
#define __SWITCHES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"

/* `handle`: a call whose arguments are of ctx, preempt, prev, next and prev_state.
 *
 * fa2c3254d7cf (5.18) added prev_state: before, the state is read here and may race with a waker on another CPU.
 */
#define ON_SCHED_SWITCH(handle)                                                                                                    \
	SEC("?tp_btf/sched_switch")                                                                                                \
	int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)      \
	{                                                                                                                          \
		handle;                                                                                                            \
		return 0;                                                                                                          \
	}                                                                                                                          \
                                                                                                                                   \
	SEC("?tp_btf/sched_switch")                                                                                                \
	int BPF_PROG(sched_switch_pre_5_18, bool preempt, struct task_struct *prev, struct task_struct *next)                      \
	{                                                                                                                          \
		unsigned int prev_state = task_state(prev);                                                                        \
                                                                                                                                   \
		handle;                                                                                                            \
		return 0;                                                                                                          \
	}

#endif
