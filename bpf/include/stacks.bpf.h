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
#include "hash.bpf.h"
#include "maps.bpf.h"
#include "unwind.bpf.h"

/* Powers of two; user space may change them before load. */
#define MAX_STACKS 65536
#define STACK_RING_BYTES (8 << 20)
/* Wake the reader early only when it might fall behind; else it comes by 20 times a second. */
#define STACK_RING_HIGH_WATER (STACK_RING_BYTES / 4)

enum stack_kind {
	STACK_USER = 1,
	STACK_KERNEL = 2,
	/* Not a stack: who woke a task, see wakers.bpf.h. */
	STACK_WAKER = 3,
	/* Not a stack: an address in a process, and whether it stands for memory shared with others. */
	STACK_ADDRESS = 4,
};

/* Ids that are no hashes: 0 is "no stack", this one a stack that nobody walked because it was to cost nothing. */
#define STACK_LEFT_OUT 1

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
RING(stack_ring, STACK_RING_BYTES);

/* Ids that have been sent. */
MAP(HASH, stacks_sent, __u64, __u8, MAX_STACKS);

#define STACK_HEADER_BYTES __builtin_offsetof(struct stack_record, addresses)

/* Multiply-xorshift over the addresses; the finalizer is MurmurHash3's (public domain, Austin Appleby). */
static __always_inline __u64 stack_hash(const struct stack_record *stack, __u64 seed)
{
	__u64 hash = seed ^ ((__u64)stack->kind << 56) ^ ((__u64)stack->end << 48) ^ stack->depth;

	for (int i = 0; i < MAX_STACK_DEPTH; i++) {
		if (i >= stack->depth)
			break;
		hash = mixed(hash, stack->addresses[i]);
	}
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	return hash > STACK_LEFT_OUT ? hash : hash + STACK_LEFT_OUT + 1;
}

static __always_inline __u64 ring_wakeup(bool urgent)
{
	if (urgent)
		return BPF_RB_FORCE_WAKEUP;
	return bpf_ringbuf_query(&stack_ring, BPF_RB_AVAIL_DATA) > STACK_RING_HIGH_WATER ? BPF_RB_FORCE_WAKEUP :
											   BPF_RB_NO_WAKEUP;
}

static __always_inline struct stack_scratch *scratch_at(__u32 slot)
{
	return bpf_map_lookup_elem(&stack_scratches, &slot);
}

/* The id of the stack captured in a scratch, known to user space; 0 when it could not be handed over. `urgent` wakes the reader.
 * A function of its own, so that the verifier walks the hash once and not wherever a stack is taken.
 */
__noinline __u64 intern_stack(__u32 slot, __u64 seed, bool urgent)
{
	struct stack_scratch *scratch = scratch_at(slot);
	struct stack_record *stack;
	__u64 id, bytes;
	__u8 sent = 1;
	long err;

	if (!scratch)
		return 0;
	stack = &scratch->record;
	id = stack_hash(stack, seed);
	/* Read anew: the verifier would else go through what follows once for each length that the hash ended at. */
	bytes = *(volatile __u16 *)&stack->depth + (stack->kind == STACK_USER ? scratch->python.words : 0);
	bytes = STACK_HEADER_BYTES + bytes * sizeof(__u64);
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
	if (bpf_ringbuf_output(&stack_ring, stack, bytes, ring_wakeup(urgent))) {
		bpf_map_delete_elem(&stacks_sent, &id);
		__sync_fetch_and_add(&stack_losses.ring_full, 1);
		return 0;
	}
	return id;
}

/* `bytes`: what bpf_get_stack or bpf_get_task_stack returned; 0 and -EFAULT mean that there is no such side. */
static __always_inline __u64 intern_kernel_stack(__u32 slot, struct stack_scratch *scratch, long bytes)
{
	struct stack_record *stack = &scratch->record;

	if (bytes <= 0) {
		if (bytes < 0 && bytes != -14)
			__sync_fetch_and_add(&stack_losses.unwalked, 1);
		return 0;
	}
	stack->depth = (__u64)bytes / sizeof(__u64);
	stack->kind = STACK_KERNEL;
	stack->end = 0;
	stack->tgid = 0;
	if (stack->depth >= MAX_STACK_DEPTH)
		__sync_fetch_and_add(&stack_losses.truncated, 1);
	return intern_stack(slot, 0, false);
}

/* A scratch of this CPU that no other context uses. */
static __always_inline struct stack_scratch *claim_scratch(__u32 *slot)
{
	for (__u32 i = 0; i < SCRATCHES; i++) {
		struct stack_scratch *scratch = scratch_at(i);

		*slot = i;
		if (!scratch)
			return NULL;
		/* Nothing but addition is atomic before 5.12; who reads 1 after it was first. */
		__sync_fetch_and_add(&scratch->busy, 1);
		barrier();
		if (scratch->busy == 1)
			return scratch;
		__sync_fetch_and_add(&scratch->busy, -1);
	}
	return NULL;
}

static __always_inline void release_scratch(struct stack_scratch *scratch)
{
	__sync_fetch_and_add(&scratch->busy, -1);
}

static __always_inline __u64 kernel_stack(void *ctx, __u32 slot, struct stack_scratch *scratch)
{
	struct stack_record *stack = &scratch->record;

	return intern_kernel_stack(slot, scratch, bpf_get_stack(ctx, stack->addresses, sizeof(stack->addresses), 0));
}

/* User space may not know yet what the process has mapped: the sooner it reads this, the fewer stacks go without tables. */
static __always_inline bool lacks_tables(const struct stack_scratch *scratch)
{
	if (unwind_mode == UNWIND_FP || scratch->unwind.compat)
		return false;
	if (!scratch->unwind.process.mappings && !scratch->unwind.met)
		return true;
	return scratch->record.end == STACK_END_NO_TABLE;
}

/* What was walked into the scratch; the memory map's address tells an exec under the same ID apart. */
static __always_inline __u64 intern_user_stack(__u32 slot, struct stack_scratch *scratch, struct task_struct *task,
						__u32 tgid)
{
	__u64 seed = (__u64)BPF_CORE_READ(task, mm);

	scratch->record.kind = STACK_USER;
	scratch->record.tgid = tgid;
	if (scratch->record.end == STACK_END_DEPTH)
		__sync_fetch_and_add(&stack_losses.truncated, 1);
	if (scratch->python.words)
		seed ^= scratch->python.hash;
	return intern_stack(slot, seed, lacks_tables(scratch));
}

static __always_inline bool has_user_stack(struct task_struct *task)
{
	return BPF_CORE_READ(task, mm) && !(BPF_CORE_READ(task, flags) & PF_KTHREAD);
}

/* The stack of `task`, which is current and inside the kernel. */
static __always_inline __u64 user_stack(__u32 slot, struct stack_scratch *scratch, struct task_struct *task, __u32 tgid)
{
	if (!has_user_stack(task))
		return 0;
	unwind_from_kernel(slot, scratch, task, tgid);
	return intern_user_stack(slot, scratch, task, tgid);
}

/* As user_stack, from registers of the thread outside the kernel: where a clock tick or a breakpoint found it. */
static __always_inline __u64 user_stack_from(__u32 slot, struct stack_scratch *scratch, struct task_struct *task,
					     __u32 tgid, __u64 ip, __u64 sp, __u64 bp)
{
	struct unwind *at = &scratch->unwind;

	bpf_probe_read_kernel(&at->regs, sizeof(at->regs), user_regs_of(task));
	at->ip = ip;
	at->sp = sp;
	at->bp = bp;
	at->exact = 1;
	at->compat = user_is_compat(&at->regs);
	unwind_user(slot, scratch, task, tgid);
	return intern_user_stack(slot, scratch, task, tgid);
}

#endif
