/* SPDX-License-Identifier: MIT */
/* ids.bpf.h: process and thread IDs as the tool's own PID namespace numbers them. */
#ifndef __IDS_BPF_H__
#define __IDS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Depth of the tool's namespace below the initial one, where the kernel's own numbers serve. */
__u32 pid_namespace_level = 0;

/* Notes the depth, which user space cannot see. Runs in the tool's context, before anything else is attached (loader::attach):
 * whoever was taken for a target by the kernel's numbers would stay one.
 */
SEC("iter/task")
int note_namespace(struct bpf_iter__task *ctx)
{
	struct task_struct *tool = (struct task_struct *)bpf_get_current_task();

	pid_namespace_level = BPF_CORE_READ(tool, thread_pid, level);
	return 0;
}

/* 0 when the task has no number in the tool's namespace.
 *
 * Inlined, for a program that has functions of its own is not safe before Linux 6.5, if it may read through a pointer that is NULL, as
 * biolatency's do: the kernel looks for such a read's exception table at the program, which has none then, and panics.
 */
static __always_inline __u32 namespace_pid(__u32 inum, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid upid = {};

	if (BPF_CORE_READ(pid, level) < pid_namespace_level)
		return 0;
	bpf_core_read(&upid, sizeof(upid), &pid->numbers[pid_namespace_level]);
	if (BPF_CORE_READ(upid.ns, ns.inum) != inum)
		return 0;
	return upid.nr;
}

static __always_inline __u32 tid_of(__u32 inum, struct task_struct *task)
{
	return pid_namespace_level ? namespace_pid(inum, task) : BPF_CORE_READ(task, pid);
}

static __always_inline __u32 tgid_of(__u32 inum, struct task_struct *task)
{
	return pid_namespace_level ? namespace_pid(inum, BPF_CORE_READ(task, group_leader)) : BPF_CORE_READ(task, tgid);
}

#endif
