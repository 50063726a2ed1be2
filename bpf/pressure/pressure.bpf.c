/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* pressure: which tasks lose time for want of a CPU, of I/O or of memory, and which tasks cause it.
 *
 * Every task is followed: running → asleep → waiting for a CPU → running. What it lost is added up in its own state and
 * never reset: at the end of an interval an iterator hands out the differences since its last visit, waits that are
 * still open included. So no wait is counted twice or falls between two reports, without locks in the scheduler's path.
 *
 * "Stalled" means what PSI means by it: on I/O, asleep with `in_iowait`, until made runnable; on memory, with
 * `in_memstall`, on a CPU or off it; on the CPU, runnable and not running. `in_memstall` is set and cleared without an
 * event of its own: it is looked at when a task leaves its CPU, and tracepoints bracket reclaim and compaction.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "stall_phases.bpf.h"
#include "stall_stacks.bpf.h"
#include "stocktaking.bpf.h"
#include "switches.bpf.h"

/* Requests that failed. */
__u64 block_errors = 0;

/* It runs here since a switch that was seen; one that was moved unseen does not. */
static __always_inline bool has_run_on(const struct member *member, __u32 cpu)
{
	return member->phase == PHASE_RUNNING && member->cpu == cpu;
}

static __always_inline bool ran_unseen(const struct member *member, __u32 cpu)
{
	return member->phase == PHASE_WAITING || member->phase == PHASE_ASLEEP ||
	       (member->phase == PHASE_RUNNING && member->cpu != cpu);
}

/* Everything but the CPU's counters. */
static __always_inline void switched_out(struct member *member, struct task_struct *task, bool preempt, __u32 state,
					 __u32 cpu, __u64 now)
{
	if (ran_unseen(member, cpu))
		drop_phase(member, now);
	else
		settle(member, now);
	member->switches = switches_of(task);
	if (config.psi) {
		member->memory = is_in_memstall(task);
		if (!member->memory)
			member->reclaims = 0;
	}
	member->io = 0;
	if (stays_runnable(task, preempt, state)) {
		member->phase = PHASE_WAITING;
	} else if (state & TASK_DEAD) {
		member->phase = PHASE_DEAD;
		member->memory = 0;
	} else {
		member->phase = PHASE_ASLEEP;
		member->io = BPF_CORE_READ_BITFIELD(task, in_iowait);
	}
	member->counted = counts_of(member, member->phase == PHASE_WAITING && is_throttled(task));
}

/* Returns the counters of this CPU that it leaves. */
static __always_inline __u32 switched_in(struct member *member, struct task_struct *task, __u32 cpu, __u64 now)
{
	__u32 leaves;

	if (member->phase == PHASE_RUNNING || member->phase == PHASE_ASLEEP || is_stale(member, task))
		drop_phase(member, now);
	else
		settle(member, now);
	leaves = member->counted;
	if (leaves && member->cpu != cpu) {
		leave_counters(member, now);
		leaves = 0;
	}
	member->counted = 0;
	member->phase = PHASE_RUNNING;
	member->io = 0;
	/* Sleepers for memory are done with it as soon as they run; reclaim goes on. */
	member->memory = member->reclaims > 0;
	member->cpu = cpu;
	return leaves;
}

static __always_inline void task_switched(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
					  __u32 state)
{
	__u64 now = bpf_ktime_get_ns(), waited_ns, caused_ns = 0;
	__u32 cpu = bpf_get_smp_processor_id(), leaves = 0, joins = 0;
	struct member *out = member_of(prev), *in = member_of(next);
	struct stalls *at = stalls_of(cpu);
	bool was_running;

	if (!at)
		return;
	count_event();
	/* The switch to the idle task was missed. */
	if (prev->pid == 0 && at->busy)
		__sync_fetch_and_add(&losses.unseen, 1);
	was_running = out && has_run_on(out, cpu);
	if (out) {
		switched_out(out, prev, preempt, state, cpu, now);
		out->cpu = cpu;
		joins = out->counted;
	}
	if (in)
		leaves = switched_in(in, next, cpu, now);
	LOCKED(at, cpu, {
		pass_time(at, now);
		change_counts(at, joins, 1);
		change_counts(at, leaves, -1);
		at->busy = next->pid != 0;
		waited_ns = at->waited_ns;
	});
	if (was_running) {
		caused_ns = waited_ns - out->waited_at_ns;
		out->caused_ns += caused_ns;
	}
	if (in)
		in->waited_at_ns = waited_ns;
	if (!config.stacks)
		return;
	if (out)
		report_culprit(ctx, out, prev, caused_ns);
	if (in) {
		resumed(in, next);
		in->never_ran = 0;
	}
}

ON_SCHED_SWITCH(task_switched(ctx, preempt, prev, next, prev_state))

static __always_inline void made_runnable(struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member || member->phase == PHASE_DEAD || is_on_cpu(task))
		return;
	count_event();
	/* Wakeups also reach tasks preempted half-way to sleep, which are waiting already. */
	if (member->phase != PHASE_WAITING || is_stale(member, task))
		begin_waiting(member, task, bpf_ktime_get_ns());
}

#include "wakeups.bpf.h"

/* Sleepers stay with the CPU that they fell asleep on until they wake. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *task, int dest_cpu)
{
	struct member *member = member_of(task);
	__u32 counted;
	__u64 now;

	if (!member || member->phase != PHASE_WAITING || !member->counted)
		return 0;
	now = bpf_ktime_get_ns();
	counted = member->counted;
	leave_counters(member, now);
	member->cpu = dest_cpu;
	member->counted = counted;
	recount(dest_cpu, 0, counted, now);
	return 0;
}

/* `marked`: the kernel has set in_memstall by now, if it is a stall at all (proactive reclaim is none). */
static __always_inline void reclaim_begins(bool marked)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = current_task();
	struct member *member = member_of(task);

	if (!member || (marked && config.psi && !is_current_in_memstall(task)))
		return;
	count_event();
	/* kswapd says each time that it wakes, not each time that it sleeps. */
	member->reclaims = marked ? member->reclaims + 1 : 1;
	settle(member, now);
	member->memory = 1;
}

static __always_inline void report_reclaim(void *ctx, struct member *member, struct task_struct *task)
{
	struct stall_stack key = { .resource = ON_MEMORY };

	describe_stack(&key, task, ROLE_VICTIM);
	if (walk_current(ctx, &key, task, true))
		add_weight(&key, member->pending_ns[ON_MEMORY]);
	member->pending_ns[ON_MEMORY] = 0;
}

static __always_inline void reclaim_ends(void *ctx)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	__u64 now;

	if (!member || !member->reclaims || --member->reclaims)
		return;
	/* Late, as it is early where reclaim begins: the kernel takes what this program costs for a part of the stall. */
	now = bpf_ktime_get_ns();
	settle(member, now);
	member->memory = 0;
	if (config.stacks)
		report_reclaim(ctx, member, task);
}

#define BRACKET(name, begin, end, marked)                  \
	SEC("?tp_btf/" #begin)                             \
	int BPF_PROG(name##_begins)                        \
	{                                                  \
		reclaim_begins(marked);                    \
		return 0;                                  \
	}                                                  \
	SEC("?tp_btf/" #end)                               \
	int BPF_PROG(name##_ends)                          \
	{                                                  \
		reclaim_ends(ctx);                          \
		return 0;                                  \
	}

BRACKET(direct_reclaim, mm_vmscan_direct_reclaim_begin, mm_vmscan_direct_reclaim_end, true)
BRACKET(memcg_reclaim, mm_vmscan_memcg_reclaim_begin, mm_vmscan_memcg_reclaim_end, true)
BRACKET(compaction, mm_compaction_begin, mm_compaction_end, true)
/* These fire before the kernel marks the stall. */
BRACKET(node_reclaim, mm_vmscan_node_reclaim_begin, mm_vmscan_node_reclaim_end, false)
BRACKET(kswapd, mm_vmscan_kswapd_wake, mm_vmscan_kswapd_sleep, false)

/* What a driver below (device mapper, RAID) makes of a bio is not counted again. */
static __always_inline void io_submitted(void *ctx)
{
	struct stall_stack key = { .resource = ON_IO };
	struct task_struct *task = current_task();
	struct member *member = member_of(task);

	if (!member || BPF_CORE_READ(task, bio_list))
		return;
	member->ios++;
	if (!config.stacks)
		return;
	describe_stack(&key, task, ROLE_CULPRIT);
	if (walk_current(ctx, &key, task, true))
		add_weight(&key, 1);
}

SEC("?tp_btf/block_bio_queue")
int BPF_PROG(block_bio_queue)
{
	io_submitted(ctx);
	return 0;
}

SEC("?tp_btf/block_rq_error")
int BPF_PROG(block_rq_error)
{
	__sync_fetch_and_add(&block_errors, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
