/* SPDX-License-Identifier: MIT */
/* kernel_stack_cache.bpf.h: recognise a blocked task's kernel stack without walking it.
 *
 * A walk by ORC tables costs some 250 ns a frame. What it finds follows from the code addresses on the stack and where
 * they lie; a function with a frame pointer moves what is above it, and so shows in the positions too. A hash over those
 * words, with their positions and the system call's number, stands for the walk's result: threads that block in the same
 * place again and again are walked once. A stack larger than the window is walked every time: with the gap below, 1 KiB
 * were too little for a reader of a pipe.
 *
 * 39218ff4c625 (5.13) puts a gap of random size, full of leftovers, between the system call's dispatcher and its caller:
 * the hash ends at the return address into the dispatcher, above which nothing differs within one system call.
 */
#ifndef __KERNEL_STACK_CACHE_BPF_H__
#define __KERNEL_STACK_CACHE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "maps.bpf.h"

/* Of x86-64: code, modules and BPF programs lie in the address space's last 2 GiB. */
#define KERNEL_TEXT_SHIFT 31
#define STACK_WINDOW_WORDS 256
#define MAX_CACHED_STACKS 16384

/* One window per CPU: used under the run-queue lock only, where nothing interrupts. */
struct stack_window {
	__u64 words[STACK_WINDOW_WORDS];
};

PER_CPU(stack_window, struct stack_window);

/* hash of a stack's words → id of the stack that walking it gave */
MAP(HASH, walked_stacks, __u64, __u64, MAX_CACHED_STACKS);

/* Return addresses into do_syscall_64, learnt from walks of tasks inside a system call: it calls the system call, and the
 * work on its way out. The range from the lowest to the highest one; 0: none yet.
 */
__u64 dispatcher_low = 0;
__u64 dispatcher_high = 0;
/* Larger than the dispatcher: what lies further away is no part of it. */
#define DISPATCHER_BYTES 4096

/* `depth` addresses, leaf first: the entry code is the root, its callee the dispatcher. */
static __always_inline void learn_dispatcher(const __u64 *addresses, __u32 depth)
{
	__u64 address;

	if (depth < 3)
		return;
	/* Masked: the verifier of 6.1 does not follow what clang makes of a comparison. A stack has at most 127. */
	address = addresses[(depth - 2) & 127];
	if (!dispatcher_low)
		dispatcher_low = dispatcher_high = address;
	else if (address < dispatcher_low && dispatcher_high - address < DISPATCHER_BYTES)
		dispatcher_low = address;
	else if (address > dispatcher_high && address - dispatcher_low < DISPATCHER_BYTES)
		dispatcher_high = address;
}

/* Hash of as many words of the window, up to the first in [low, low + span). A function of its own, so that the verifier walks the loop
 * once and not wherever a task's words are read.
 */
__noinline __u64 hash_window(__u32 words, __u64 hash, __u64 low, __u64 span)
{
	struct stack_window *window;
	__u32 zero = 0;

	window = bpf_map_lookup_elem(&stack_window, &zero);
	if (!window)
		return hash;
	/* Not their number, which the gap changes: each word changes the hash, so it has that. */
	for (__u32 i = 0; i < STACK_WINDOW_WORDS; i++) {
		__u64 word = window->words[i], others;

		if (i >= words)
			break;
		if (word - low < span)
			break;
		/* 0 for an address of code: without a branch, which nothing could predict. */
		others = word >> KERNEL_TEXT_SHIFT ^ ~0ULL >> KERNEL_TEXT_SHIFT;
		hash = (hash ^ (word & -((others - 1) >> 63))) * 0x9e3779b97f4a7c15ULL;
	}
	return hash;
}

/* `syscall`: number of the call in progress, -1 for none. */
static __always_inline __u64 kernel_stack_print(struct task_struct *task, __u64 syscall)
{
	__u64 base = (__u64)BPF_CORE_READ(task, stack), top = base + KERNEL_STACK_BYTES;
	__u64 sp = switched_out_sp(task);
	/* Not 0 for any call: words that are no code would leave that as it is. */
	__u64 bytes = top - sp, hash = ~syscall;
	/* Empty as long as no address is known. */
	__u64 low = dispatcher_low, span = low ? dispatcher_high - low + 1 : 0;
	struct stack_window *window;
	__u32 zero = 0;

	window = bpf_map_lookup_elem(&stack_window, &zero);
	if (!window || bytes > sizeof(window->words))
		return 0;
	if (bpf_probe_read_kernel(window->words, bytes, (void *)sp))
		return 0;
	hash = hash_window(bytes / sizeof(__u64), hash, low, span);
	hash ^= hash >> 29;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 32;
	return hash ?: 1;
}

static __always_inline __u64 walked_stack(__u64 print)
{
	__u64 *id = print ? bpf_map_lookup_elem(&walked_stacks, &print) : NULL;

	return id ? *id : 0;
}

/* A full cache costs walks, nothing else. */
static __always_inline void remember_walk(__u64 print, __u64 id)
{
	if (print && id)
		bpf_map_update_elem(&walked_stacks, &print, &id, BPF_ANY);
}

#endif
