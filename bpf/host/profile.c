/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* profile.c: profile's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_tracing.h>

static void *host_keep_moment(__u64 bytes);
static __u64 host_place(__u64 ip, __u64 sp, __u64 bp);
static struct stack_scratch *host_claim(__u32 *slot);

/* A probed function's arguments, instruction, stack and frame. */
#define HOST_PROBED(regs, at) (((const __u64 *)(regs))[at])
#define PT_REGS_PARM1_CORE(regs) HOST_PROBED(regs, 1)
#define PT_REGS_PARM2_CORE(regs) HOST_PROBED(regs, 2)
#define PT_REGS_PARM3_CORE(regs) HOST_PROBED(regs, 3)
#define PT_REGS_PARM4_CORE(regs) HOST_PROBED(regs, 4)
#define PT_REGS_PARM5_CORE(regs) HOST_PROBED(regs, 5)
#define PT_REGS_PARM6_CORE(regs) HOST_PROBED(regs, 6)
#define PT_REGS_IP_CORE(regs) HOST_PROBED(regs, 7)
#define PT_REGS_SP_CORE(regs) HOST_PROBED(regs, 8)
#define PT_REGS_FP_CORE(regs) HOST_PROBED(regs, 9)

#include "no_stacks.h"

/* Stacks are told apart by where their walks begin. */
#define HOST_KERNEL_STACK 1
#define HOST_SAVED_STACK 2
#undef kernel_stack
#undef user_stack
#define kernel_stack(ctx, slot, scratch) HOST_KERNEL_STACK
#define user_stack(slot, scratch, task, tgid) HOST_SAVED_STACK
#define user_stack_from(slot, scratch, task, tgid, ip, sp, bp) host_place(ip, sp, bp)
#define claim_scratch(slot) host_claim(slot)
#define release_scratch(scratch) (host_claimed--)
#undef bpf_ringbuf_reserve
#undef bpf_ringbuf_submit
#define bpf_ringbuf_reserve(map, bytes, flags) host_keep_moment(bytes)
#define bpf_ringbuf_submit(moment, flags) (host_is_sent = true)

__s32 host_claimed;
static bool host_is_busy, host_ring_is_full, host_is_sent;

#include "../profile/profile.bpf.c"

static __u64 host_place(__u64 ip, __u64 sp, __u64 bp)
{
	return ip * 31 * 31 + sp * 31 + bp;
}

static struct stack_scratch *host_claim(__u32 *slot)
{
	if (host_is_busy)
		return NULL;
	host_claimed++;
	return scratch_at(*slot = 0);
}

static struct moment host_moment;

static void *host_keep_moment(__u64 bytes)
{
	__builtin_memset(&host_moment, 0, sizeof(host_moment));
	return host_ring_is_full ? NULL : &host_moment;
}

/* Another process unless `leader` is one's own. */
struct task_struct *host_thread(__u32 tid, __u32 flags, __u64 start_time, struct task_struct *leader, struct task_struct *parent,
				const char comm[16])
{
	struct task_struct *task = host_make_task(sizeof(*task));

	task->group_leader = leader ?: task;
	task->real_parent = parent ?: task;
	task->pid = tid;
	task->tgid = task->group_leader->pid;
	task->flags = flags;
	task->start_time = start_time;
	__builtin_memcpy(task->comm, comm, sizeof(task->comm));
	return task;
}

/* 0: not yet, or not known. */
void host_window(__u64 start_ns, __u64 end_ns)
{
	window_start_ns = start_ns;
	window_end_ns = end_ns;
}

void host_lack(bool scratch, bool ring)
{
	host_is_busy = scratch;
	host_ring_is_full = ring;
}

/* A clock tick; registers are numbers from `base` on. Where the walk of a thread outside the kernel begins. */
__u64 host_tick(__u64 base)
{
	struct bpf_perf_event_data context = {};
	__u64 *words = (__u64 *)&context.regs;

	for (__u32 at = 0; at < sizeof(context.regs) / sizeof(*words); at++)
		words[at] = base + at;
	on_overflow(&context);
	return host_place(user_ip(&context.regs), user_sp(&context.regs), user_fp(&context.regs));
}

void host_tracepoint(const void *record)
{
	on_tracepoint((void *)record);
}

void host_probe(const __u64 registers[10], bool multi)
{
	if (multi)
		on_uprobe_multi((void *)registers);
	else
		on_uprobe((void *)registers);
}

/* The moment of the last sample, once: time, weight, CPU, thread, process, the key's thread, stacks. */
bool host_take_moment(__u64 told[8])
{
	bool sent = host_is_sent;

	told[0] = host_moment.time_ns;
	told[1] = host_moment.weight;
	told[2] = host_moment.cpu;
	told[3] = host_moment.tid;
	told[4] = host_moment.key.tgid;
	told[5] = host_moment.key.tid;
	told[6] = host_moment.key.kernel_stack;
	told[7] = host_moment.key.user_stack;
	host_is_sent = false;
	return sent;
}
