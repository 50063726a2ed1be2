/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* profile_follow.c: the programs that keep the list of profile's processes, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_tracing.h>
#include "follow.bpf.h"
#include "tasks.h"

/* The tool, of that number and at that depth of PID namespaces, wants a command and its children. */
void host_want(__u32 own_tgid, __u32 pid_namespace, struct task_struct *tool)
{
	struct target_config wanted = {
		.pid_namespace = pid_namespace,
		.own_tgid = own_tgid,
		.by_tgid = 1,
		.follow = 1,
	};

	host_poke(&targets, &wanted, sizeof(wanted));
	host_set(0, 0, tool);
	note_namespace(NULL);
}

/* The process is meant from its exec on. */
void host_want_process(__u32 tgid)
{
	__u8 wanted = 0;

	bpf_map_update_elem(&target_tgids, &tgid, &wanted, BPF_ANY);
}

bool host_is_target(struct task_struct *task)
{
	return is_target(task);
}
