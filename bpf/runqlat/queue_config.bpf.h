/* SPDX-License-Identifier: MIT */
/* queue_config.bpf.h: the part of what is asked for that user space sets. */
#ifndef __QUEUE_CONFIG_BPF_H__
#define __QUEUE_CONFIG_BPF_H__

#include "vmlinux.h"

enum group_by {
	BY_MACHINE = 0,
	BY_PROCESS,
	BY_THREAD,
	BY_CPU,
	BY_CGROUP,
};

struct runqlat_config {
	enum group_by group_by;
	/* Bits of 1 << enum wait_cause. */
	__u32 causes;
	/* Waits at least this long are sent one by one; 0: none. */
	__u64 slower_ns;
	/* Each process that waited is told apart: whom it waited behind. */
	__u32 by_victim;
	__u32 pad;
};

const volatile struct runqlat_config config = {};

#endif
