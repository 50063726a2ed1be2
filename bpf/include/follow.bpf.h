/* SPDX-License-Identifier: MIT */
/* follow.bpf.h: programs that keep the list of target processes, for tools that keep nothing else about processes. */
#ifndef __FOLLOW_BPF_H__
#define __FOLLOW_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "targets.bpf.h"

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	target_forked(parent, child);
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	target_executed(task);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	if (pid_namespace_level)
		forget_exited(task);
	return 0;
}

SEC("?tp_btf/sched_process_free")
int BPF_PROG(sched_process_free, struct task_struct *task)
{
	if (!pid_namespace_level)
		forget_freed(task);
	return 0;
}

#endif
