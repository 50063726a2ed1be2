/* SPDX-License-Identifier: MIT */
/* gone.bpf.h: names of threads that have ended: who ran while others waited may be gone when it is told of. */
#ifndef __GONE_BPF_H__
#define __GONE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "maps.bpf.h"
#include "targets.bpf.h"

/* The latest ones. */
#define MAX_GONE 4096

struct gone_name {
	__u8 comm[16];
};

/* By the number that the thread had. */
MAP(LRU_HASH, gone_names, __u32, struct gone_name, MAX_GONE);

/* It still has its number. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(remember_gone, struct task_struct *task)
{
	__u32 tid = tid_of(targets.pid_namespace, task);
	struct gone_name name = {};

	if (!tid)
		return 0;
	bpf_core_read(&name.comm, sizeof(name.comm), &task->comm);
	bpf_map_update_elem(&gone_names, &tid, &name, BPF_ANY);
	return 0;
}

#endif
