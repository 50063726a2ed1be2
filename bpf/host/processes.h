/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* processes.h: processes begin, execute and end; behind programs that follow them. */
#ifndef __HOST_PROCESSES_H__
#define __HOST_PROCESSES_H__

/* `child` begins, and is not on a queue yet. */
void host_fork(struct task_struct *parent, struct task_struct *child)
{
	unsigned long long context[] = { (unsigned long long)parent, (unsigned long long)child };

	sched_process_fork(context);
}

void host_exec(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_process_exec(context);
}

void host_exit(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_process_exit(context);
}

bool host_is_listed(__u32 tgid)
{
	return bpf_map_lookup_elem(&target_tgids, &tgid);
}

#endif
