/* SPDX-License-Identifier: MIT */
/* stacks.bpf.h: capture a stack, intern it under a 64-bit id, send it to user space once.
 *
 * bpf_get_stackid is not used: its buckets hold one stack each and lose the hottest ones for good. Here a stack's id is
 * a hash of its addresses; the addresses travel through the ring buffer when the id is new, so that user space can name
 * them while the process is alive. A stack whose record finds the ring full is forgotten again and retried when it next
 * occurs.
 */
#ifndef __STACKS_BPF_H__
#define __STACKS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define MAX_STACK_DEPTH 127
/* Powers of two; user space may change them before load. */
#define MAX_STACKS 65536
#define STACK_RING_BYTES (8 << 20)
/* Wake the reader early only when it might fall behind; else it comes by 20 times a second. */
#define STACK_RING_HIGH_WATER (STACK_RING_BYTES / 4)

enum stack_kind {
	STACK_USER = 1,
	STACK_KERNEL = 2,
	/* Not a stack: who woke a task, see offcputime.bpf.c. */
	STACK_WAKER = 3,
};

/* One ring buffer record; `depth` addresses follow, leaf first. */
struct stack_record {
	__u64 id;
	__u64 time_ns;
	__u32 tgid;
	__u16 depth;
	__u16 kind;
	__u64 addresses[MAX_STACK_DEPTH];
};

struct stack_config {
	__u32 no_user;
	__u32 no_kernel;
};

struct stack_losses {
	/* The ring had no room: the stack is sent when it next occurs. */
	__u64 ring_full;
	/* More distinct stacks than MAX_STACKS. */
	__u64 table_full;
	/* The kernel could not walk the stack at all. */
	__u64 unwalked;
	/* Cut at MAX_STACK_DEPTH (or kernel.perf_event_max_stack) frames: the root is missing. */
	__u64 truncated;
};

struct stack_losses stack_losses = {};

/* New stacks on their way to user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, STACK_RING_BYTES);
} stack_ring SEC(".maps");

/* Ids that have been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_STACKS);
	__type(key, __u64);
	__type(value, __u8);
} stacks_sent SEC(".maps");

#define STACK_HEADER_BYTES __builtin_offsetof(struct stack_record, addresses)

/* Multiply-xorshift over the addresses; the finalizer is MurmurHash3's (public domain, Austin Appleby). */
static __always_inline __u64 stack_hash(const struct stack_record *stack, __u64 seed)
{
	__u64 hash = seed ^ ((__u64)stack->kind << 56) ^ stack->depth;

	for (int i = 0; i < MAX_STACK_DEPTH; i++) {
		if (i >= stack->depth)
			break;
		hash = (hash ^ stack->addresses[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	/* 0 means "no stack". */
	return hash ?: 1;
}

static __always_inline __u64 ring_wakeup(void)
{
	return bpf_ringbuf_query(&stack_ring, BPF_RB_AVAIL_DATA) > STACK_RING_HIGH_WATER ? BPF_RB_FORCE_WAKEUP :
											   BPF_RB_NO_WAKEUP;
}

/* The id of a captured stack, known to user space; 0 when it could not be handed over. */
static __always_inline __u64 intern_stack(struct stack_record *stack, __u64 seed)
{
	__u64 id = stack_hash(stack, seed);
	__u64 bytes = STACK_HEADER_BYTES + stack->depth * sizeof(__u64);
	__u8 sent = 1;
	long err;

	if (bpf_map_lookup_elem(&stacks_sent, &id))
		return id;
	err = bpf_map_update_elem(&stacks_sent, &id, &sent, BPF_NOEXIST);
	if (err == -17 /* EEXIST: another CPU was faster */)
		return id;
	if (err) {
		__sync_fetch_and_add(&stack_losses.table_full, 1);
		return 0;
	}
	if (bytes > sizeof(*stack))
		return 0;
	stack->id = id;
	stack->time_ns = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(&stack_ring, stack, bytes, ring_wakeup())) {
		bpf_map_delete_elem(&stacks_sent, &id);
		__sync_fetch_and_add(&stack_losses.ring_full, 1);
		return 0;
	}
	return id;
}

/* `bytes`: what bpf_get_stack or bpf_get_task_stack returned; 0 and -EFAULT mean that there is no such side. */
static __always_inline __u64 finish_stack(struct stack_record *stack, long bytes, enum stack_kind kind, __u32 tgid,
					  __u64 seed)
{
	if (bytes <= 0) {
		if (bytes < 0 && bytes != -14)
			__sync_fetch_and_add(&stack_losses.unwalked, 1);
		return 0;
	}
	stack->depth = (__u64)bytes / sizeof(__u64);
	stack->kind = kind;
	stack->tgid = tgid;
	if (stack->depth >= MAX_STACK_DEPTH)
		__sync_fetch_and_add(&stack_losses.truncated, 1);
	return intern_stack(stack, seed);
}

/* `scratch` is per CPU and per context: an interrupt must not find the one that it interrupted. */
static __always_inline __u64 kernel_stack(void *ctx, struct stack_record *scratch)
{
	long bytes = bpf_get_stack(ctx, scratch->addresses, sizeof(scratch->addresses), 0);

	return finish_stack(scratch, bytes, STACK_KERNEL, 0, 0);
}

/* The stack of `task`, which is current; its memory map's address tells an exec under the same ID apart. */
static __always_inline __u64 user_stack(void *ctx, struct task_struct *task, __u32 tgid, struct stack_record *scratch)
{
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	long bytes;

	if (!mm)
		return 0;
	bytes = bpf_get_stack(ctx, scratch->addresses, sizeof(scratch->addresses), BPF_F_USER_STACK);
	return finish_stack(scratch, bytes, STACK_USER, tgid, mm);
}

/* User code segment of 32-bit programs, whose frames have another layout. */
#define USER32_CS 0x23

struct user_frame {
	__u64 next;
	__u64 caller;
};

/* Frame pointers of a user thread inside the kernel, which is current: bpf_get_stack finds the same at four times the
 * cost. The chain is the thread's own memory: it has to go up, and ends where it cannot be read.
 */
static __always_inline long walk_frame_pointers(const struct pt_regs *regs, struct stack_record *stack)
{
	__u64 frame = BPF_CORE_READ(regs, bp), floor = BPF_CORE_READ(regs, sp);
	struct user_frame found;
	__u32 depth = 1;

	stack->addresses[0] = BPF_CORE_READ(regs, ip);
	for (; depth < MAX_STACK_DEPTH; depth++) {
		if (frame < floor || frame & 7 || bpf_probe_read_user(&found, sizeof(found), (void *)frame))
			break;
		if (!found.caller)
			break;
		stack->addresses[depth] = found.caller;
		floor = frame + sizeof(found);
		frame = found.next;
	}
	return depth * sizeof(__u64);
}

/* As user_stack, for a thread that is in the kernel of its own accord: blocked, or just resumed. */
static __always_inline __u64 blocked_user_stack(void *ctx, struct task_struct *task, __u32 tgid,
						struct stack_record *scratch)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);

	if (!mm)
		return 0;
	if (BPF_CORE_READ(regs, cs) == USER32_CS)
		return user_stack(ctx, task, tgid, scratch);
	return finish_stack(scratch, walk_frame_pointers(regs, scratch), STACK_USER, tgid, mm);
}

#endif
