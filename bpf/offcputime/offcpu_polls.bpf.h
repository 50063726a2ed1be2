/* SPDX-License-Identifier: MIT */
/* offcpu_polls.bpf.h: what targets poll, as polled_by_arguments() has it. */
#ifndef __OFFCPU_POLLS_BPF_H__
#define __OFFCPU_POLLS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "polls.bpf.h"
#include "switches.bpf.h"
#include "targets.bpf.h"
#include "waits.bpf.h"

#define MAX_POLLED_BEFORE 4096

/* Words that user space has read from the memory of a thread in a poll. */
struct polled_words {
	__u64 words[MOST_POLLED];
	/* 1 + the switches of the thread when it had begun to wait. */
	__u64 since;
};

/* Thread → its words. Those of threads that are gone make room for others. */
MAP(LRU_HASH, polled_before, __u32, struct polled_words, MAX_POLLED_BEFORE);

/* False: it does not poll. */
static __always_inline bool poll_of(struct task_struct *task, __u64 *number, struct call_arguments *from)
{
	const struct pt_regs *regs = user_regs_of(task);

	*number = (__u32)syscall_number(regs);
	if (!is_poll(*number) && !is_select(*number))
		return false;
	if (is_compat_call(task))
		return false;
	arguments_of(regs, false, from);
	return true;
}

/* The poll of a task that is current. Not inlined: programs look at polls in several places. */
static __noinline __u32 polled_now(struct task_struct *task)
{
	struct call_arguments from;
	__u64 number;

	return poll_of(task, &number, &from) ? polled_in_call(task, number, &from, true) : 0;
}

/* The poll of any task that has left its CPU, by what user space has read. */
static __noinline __u32 polled_then(struct task_struct *task)
{
	struct call_arguments from;
	struct polled_words *told;
	struct poll_memory memory;
	__u32 tid, polled;
	__u64 number;

	if (!poll_of(task, &number, &from))
		return 0;
	polled = polled_by_arguments(number, &from, &memory);
	if (!memory.address)
		return polled;
	tid = tid_of(targets.pid_namespace, task);
	told = bpf_map_lookup_elem(&polled_before, &tid);
	return told && told->since == 1 + switches_of(task) ? polled_by_words(task, number, &from, told->words, true) : 0;
}

/* The words that polled_then() wants of a task. */
static __always_inline void unread_poll(struct task_struct *task, struct poll_memory *memory)
{
	struct call_arguments from;
	__u64 number;

	memory->address = memory->words = 0;
	if (poll_of(task, &number, &from))
		polled_by_arguments(number, &from, memory);
}

#endif
