/* SPDX-License-Identifier: MIT */
/* no_stacks.h: stands for stacks.bpf.h and kernel_stack_cache.bpf.h, where no thread has any stack. */
#ifndef __HOST_NO_STACKS_H__
#define __HOST_NO_STACKS_H__

#define __STACKS_BPF_H__
#define __KERNEL_STACK_CACHE_BPF_H__

#include "vmlinux.h"
#include "targets.bpf.h"

#define MAX_STACK_DEPTH 127
#define STACK_LEFT_OUT 1
#define STACK_WAKER 1
#define STACK_ADDRESS 2

struct stack_config {
	__u32 no_user;
	__u32 no_kernel;
};

struct stack_record {
	__u64 addresses[MAX_STACK_DEPTH];
	__u32 depth;
	__u32 kind;
	__u32 end;
	__u32 tgid;
};

struct stack_scratch {
	struct stack_record record;
	struct {
		__u64 outer_sp;
		__u32 inside;
	} unwind;
};

static inline struct stack_scratch *scratch_at(__u32 slot)
{
	static struct stack_scratch scratches[2];

	return &scratches[slot];
}

#define has_user_stack(task) false
#define user_stack(slot, scratch, task, tgid) 0
#define kernel_stack(ctx, slot, scratch) 0
#define intern_stack(slot, tgid, urgent) 0
#define intern_kernel_stack(slot, scratch, bytes) 0
#define learn_dispatcher(addresses, depth) ((void)0)
#define kernel_stack_print(task, syscall) 0
#define walked_stack(print) 0
#define remember_walk(print, id) ((void)0)
#define bpf_get_task_stack(task, addresses, bytes, flags) 0
#define bpf_get_current_comm(comm, bytes) __builtin_memset(comm, 0, bytes)

#endif
