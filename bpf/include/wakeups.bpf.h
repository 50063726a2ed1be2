/* SPDX-License-Identifier: MIT */
/* wakeups.bpf.h: hands every task that is put on a run queue to `made_runnable`, which the tool defines before. */
#ifndef __WAKEUPS_BPF_H__
#define __WAKEUPS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	made_runnable(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	made_runnable(task);
	return 0;
}

#endif
