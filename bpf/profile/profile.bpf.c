/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* profile: stacks of whoever is running when an event fires: a clock tick, a counter's overflow, a tracepoint, a uprobe.
 *
 * Counts per (process, name, stacks) are added up here; user space reads them once, at the end. Times of single samples go
 * through a ring buffer where a file is to keep them.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "follow.bpf.h"
#include "maps.bpf.h"
#include "neighbours.bpf.h"
#include "rows.bpf.h"
#include "targets.bpf.h"
#include "stacks.bpf.h"
#include "window.bpf.h"

#define MAX_ROWS 65536
#define MAX_WEIGHT_ARGS 6

struct profile_config {
	struct stack_config stacks;
	/* The idle tasks too. */
	__u32 idle;
	/* A row per thread, not per process. */
	__u32 by_thread;
	/* Tracepoints and uprobes: every so many events. */
	__u64 every;
	/* uprobe: weigh by this argument, 1 to 6; 0: every event weighs 1. */
	__u32 weight_arg;
	/* tracepoint: weigh by the field at this offset of the record; size 0: every event weighs 1. */
	__u32 weight_offset;
	__u32 weight_size;
	__u32 weight_signed;
	/* No filter at all but the tool itself: skip the questions. */
	__u32 everything;
	__u32 pad;
};

const volatile struct profile_config config = {};

struct profile_key {
	__u32 tgid;
	/* 0 unless by_thread. */
	__u32 tid;
	__u8 comm[16];
	__u64 kernel_stack;
	__u64 user_stack;
};

#include "moments.bpf.h"

struct profile_value {
	__u64 samples;
	__u64 weight;
};

struct profile_totals {
	/* Events that fired, of anybody. */
	__u64 events;
	/* Of the idle tasks. */
	__u64 idle;
	/* Of tasks that are no targets. */
	__u64 others;
	/* Recorded. */
	__u64 samples;
	__u64 since_sample;
};

struct profile_losses {
	__u64 rows_full;
	/* Every scratch buffer of this CPU was in use. */
	__u64 busy;
	/* A weight that could not be read, or is negative. */
	__u64 bad_weight;
};

struct profile_losses losses = {};

/* (process, name, stacks) → samples */
MAP(HASH, counts, struct profile_key, struct profile_value, MAX_ROWS);

PER_CPU(totals, struct profile_totals);

static __always_inline struct profile_totals *totals_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

/* Idle tasks are nobody's target, but -I asks for them. */
static __always_inline bool is_wanted(struct task_struct *task, struct profile_totals *sums)
{
	if (BPF_CORE_READ(task, pid) == 0) {
		sums->idle++;
		return config.idle;
	}
	if (config.everything ? !is_left_out(task) : is_target(task))
		return true;
	sums->others++;
	return false;
}

static __always_inline void add_row(const struct profile_key *key, __u64 weight)
{
	struct profile_value zero = {}, *value = ROW_OF(&counts, key, zero);

	if (!value) {
		__sync_fetch_and_add(&losses.rows_full, 1);
		return;
	}
	__sync_fetch_and_add(&value->samples, 1);
	__sync_fetch_and_add(&value->weight, weight);
}

/* Where a thread was outside the kernel when the event came. */
struct user_place {
	__u64 ip;
	__u64 sp;
	__u64 bp;
};

/* `outside`: set when the event found the thread in user code. `now`: the time by which it is in the window. */
static __always_inline void sample(void *ctx, struct task_struct *task, const struct user_place *outside,
				   struct profile_totals *sums, __u64 weight, __u64 now)
{
	struct profile_key key = { .tgid = tgid_of(targets.pid_namespace, task) };
	struct stack_scratch *scratch;
	__u32 slot;

	/* Uprobe programs can be preempted by each other on one CPU, so a scratch is claimed, not just used. */
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&losses.busy, 1);
		return;
	}
	if (config.by_thread)
		key.tid = tid_of(targets.pid_namespace, task);
	bpf_core_read(&key.comm, sizeof(key.comm), &task->comm);
	if (!config.stacks.no_kernel)
		key.kernel_stack = kernel_stack(ctx, slot, scratch);
	if (!config.stacks.no_user && outside->ip)
		key.user_stack =
			user_stack_from(slot, scratch, task, key.tgid, outside->ip, outside->sp, outside->bp);
	else if (!config.stacks.no_user)
		key.user_stack = user_stack(slot, scratch, task, key.tgid);
	release_scratch(scratch);
	sums->samples++;
	add_row(&key, weight);
	send_moment(&key, task, weight, now);
}

SEC("?perf_event")
int on_overflow(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = current_task();
	struct profile_totals *sums = totals_here();
	struct user_place outside = {};
	__u64 now = bpf_ktime_get_ns();

	if (!sums || !in_window(now))
		return 0;
	sums->events++;
	if (!is_wanted(task, sums))
		return 0;
	/* The kernel's addresses are negative; the code segment cannot be asked, clang would read half a word of it. */
	if ((__s64)user_ip(&ctx->regs) > 0) {
		outside.ip = user_ip(&ctx->regs);
		outside.sp = user_sp(&ctx->regs);
		outside.bp = user_fp(&ctx->regs);
	}
	sample(ctx, task, &outside, sums, 1, now);
	return 0;
}

/* Every `config.every`th event on this CPU stands for all since the last one. */
static __always_inline bool is_due(struct profile_totals *sums)
{
	if (++sums->since_sample < config.every)
		return false;
	sums->since_sample = 0;
	return true;
}

static __always_inline __u64 tracepoint_weight(const void *record)
{
	__u64 raw = 0;

	switch (config.weight_size) {
	case 0:
		return 1;
	case 1:
		bpf_probe_read_kernel(&raw, 1, record + config.weight_offset);
		return config.weight_signed && (__s8)raw < 0 ? 0 : raw;
	case 2:
		bpf_probe_read_kernel(&raw, 2, record + config.weight_offset);
		return config.weight_signed && (__s16)raw < 0 ? 0 : raw;
	case 4:
		bpf_probe_read_kernel(&raw, 4, record + config.weight_offset);
		return config.weight_signed && (__s32)raw < 0 ? 0 : raw;
	default:
		bpf_probe_read_kernel(&raw, 8, record + config.weight_offset);
		return config.weight_signed && (__s64)raw < 0 ? 0 : raw;
	}
}

/* By helper, not directly: the compiler merges the cases into one load at a variable offset, which the verifier refuses. */
static __always_inline __u64 probe_weight(struct pt_regs *regs)
{
	switch (config.weight_arg) {
	case 1:
		return PT_REGS_PARM1_CORE(regs);
	case 2:
		return PT_REGS_PARM2_CORE(regs);
	case 3:
		return PT_REGS_PARM3_CORE(regs);
	case 4:
		return PT_REGS_PARM4_CORE(regs);
	case 5:
		return PT_REGS_PARM5_CORE(regs);
	case 6:
		return PT_REGS_PARM6_CORE(regs);
	default:
		return 1;
	}
}

static __always_inline void event_fired(void *ctx, const struct user_place *outside, __u64 weight)
{
	struct task_struct *task = current_task();
	struct profile_totals *sums = totals_here();
	__u64 now = bpf_ktime_get_ns();

	if (!sums || !in_window(now))
		return;
	sums->events++;
	if (!is_wanted(task, sums) || !is_due(sums))
		return;
	if (!weight)
		__sync_fetch_and_add(&losses.bad_weight, 1);
	sample(ctx, task, outside, sums, weight * config.every, now);
}

SEC("?tracepoint")
int on_tracepoint(void *ctx)
{
	struct user_place inside = {};

	event_fired(ctx, &inside, tracepoint_weight(ctx));
	return PASS_ON;
}

static __always_inline void function_entered(struct pt_regs *ctx)
{
	struct user_place probed = {
		.ip = PT_REGS_IP_CORE(ctx),
		.sp = PT_REGS_SP_CORE(ctx),
		.bp = PT_REGS_FP_CORE(ctx),
	};

	event_fired(ctx, &probed, probe_weight(ctx));
}

SEC("?uprobe")
int on_uprobe(struct pt_regs *ctx)
{
	function_entered(ctx);
	return 0;
}

/* 89ae89f53d20 (6.6): without a perf event between. */
SEC("?uprobe.multi")
int on_uprobe_multi(struct pt_regs *ctx)
{
	function_entered(ctx);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
