/* SPDX-License-Identifier: MIT */
/* offcpu_config.bpf.h: what offcputime is asked for. */
#ifndef __OFFCPU_CONFIG_BPF_H__
#define __OFFCPU_CONFIG_BPF_H__

#include "stacks.bpf.h"
#include "waits.bpf.h"

/* --state 0, as in bcc: still runnable. */
#define STATE_ANY (~0U)

struct offcputime_config {
	struct stack_config stacks;
	__u64 min_ns;
	__u64 max_ns;
	/* Bits of the state at switch-out, any of which must be set; STATE_ANY: no filter. */
	__u32 state_mask;
	__u32 wakers;
	/* User stacks are walked in sched_exit_tp. */
	__u32 walk_on_exit;
	/* Time of each process; how long waits took, and for which files and connections they were. */
	__u32 details;
	/* Waits one by one, too; details are on then. */
	__u32 cycles;
	/* Marks are of the calls of one function: the outermost ones count. */
	__u32 calls;
	/* Bit n: system call n is on a file or a connection, a descriptor of which is its first argument. */
	__u64 on_fd[SYSCALLS_MAX / 64];
};

const volatile struct offcputime_config config = {};

/* After the first window of several there is no sched_exit_tp: user stacks are walked at switch-out, from the moment on that the
 * programs are attached, and by user space for waits that began between windows.
 */
__u32 walk_on_leaving = 0;

static __always_inline bool walks_on_exit(void)
{
	return config.walk_on_exit && !walk_on_leaving;
}

#endif
