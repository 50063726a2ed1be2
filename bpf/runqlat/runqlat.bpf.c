/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat: how long runnable tasks wait for a CPU, and behind whom.
 *
 * A wait begins when a task is put on a run queue (sched_wakeup, sched_wakeup_new: the time an inter-processor wakeup
 * takes before that is not in it) or is preempted, and ends when it is switched in: the kernel's own run delay
 * (/proc/PID/schedstat) has the same edges. Waits that were under way when the window opened or closed are not in the
 * histogram; they are counted apart.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"

enum wait_cause {
	CAUSE_NONE = 0,
	CAUSE_WAKEUP = 1,
	CAUSE_PREEMPTED = 2,
};

/* Per task: since when a target waits; 0: it does not. */
struct member {
	__u64 runnable_ns;
	__u32 cause;
	/* Nothing has been seen of it since it became a target. */
	__u32 unseen;
	/* The task's switches when the wait began, or when it became a target: if it has been switched out since, its switch-in was
	 * hidden from us (kernels that shield some tasks run no BPF program while those are current).
	 */
	__u64 switches;
	/* For how long it had waited when the window closed, if that wait is over; else 0. */
	__u64 outlasted_ns;
	/* The run queue that the wait began in where that may be throttled as a whole, else 0. */
	__u64 queue;
	/* For how long that had stood still by then, or WITHOUT_QUOTA. */
	__u64 stood_still;
};

/* A process, thread, CPU or cgroup. */
struct group_id {
	__u64 id;
};

#define WHOLES 1

#include "maps.bpf.h"
#include "members.bpf.h"
#include "groups.bpf.h"
#include "waits.bpf.h"
#include "culprits.bpf.h"
#include "gone.bpf.h"
#include "queue_clock.bpf.h"
#include "queue_config.bpf.h"
#include "queue_losses.bpf.h"
#include "queue_open.bpf.h"
#include "quotas.bpf.h"
#include "switches.bpf.h"

struct runqlat_totals {
	__u64 wakeups;
	__u64 switches;
	/* Waits that had begun before the window. */
	__u64 under_way_at_start;
};

PER_CPU(totals, struct runqlat_totals);

/* One wait above the threshold. */
struct slow_wait {
	__u64 time_ns;
	__u64 wait_ns;
	__u32 cpu;
	__u32 cause;
	__u32 tgid;
	__u32 tid;
	__u32 prev_tgid;
	__u32 prev_tid;
	/* Nobody was on the CPU. A thread ID of 0 does not tell: tasks outside the tool's PID namespace have it, too. */
	__u32 prev_idle;
	/* Whoever was on the CPU had no part in it. */
	__u32 without_quota;
	__u8 comm[16];
	__u8 prev_comm[16];
};

RING(slow_waits, 1 << 20);

/* Ring buffer records have no map that would name their type. */
const struct slow_wait *unused_slow_wait __attribute__((unused));

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	member->unseen = origin != MEMBER_FORKED;
	member->switches = switches_of(task);
	/* Whoever is found is looked at with all others, at an edge or after a move. */
	if (origin != MEMBER_FOUND)
		note_quotas(task, true);
}

static __always_inline struct runqlat_totals *totals_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

static __always_inline __u64 group_of(struct task_struct *task)
{
	switch (config.group_by) {
	case BY_PROCESS:
		return tgid_of(targets.pid_namespace, task);
	case BY_THREAD:
		return tid_of(targets.pid_namespace, task);
	case BY_CPU:
		return bpf_get_smp_processor_id();
	case BY_CGROUP:
		return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	default:
		return 0;
	}
}

static __always_inline void add_to_group_of(__u32 now_epoch, struct task_struct *task, __u64 wait_ns)
{
	struct group_key key = { .id.id = group_of(task), .epoch = now_epoch };
	struct sum *sum = find_group(&key);
	struct sum first = {};

	if (!sum) {
		struct task_struct *named = config.group_by == BY_PROCESS ? task->group_leader : task;

		bpf_core_read(&first.comm, sizeof(first.comm), &named->comm);
		sum = make_group(&key, &first);
	}
	if (sum)
		add_to_group(&key, sum, wait_ns);
}

static __always_inline void send_slow_wait(struct member *member, struct task_struct *prev, struct task_struct *next,
					   __u64 wait_ns, __u64 now)
{
	struct slow_wait *slow = bpf_ringbuf_reserve(&slow_waits, sizeof(*slow), 0);

	if (!slow) {
		__sync_fetch_and_add(&losses.slow_ring_full, 1);
		return;
	}
	slow->time_ns = now;
	slow->wait_ns = wait_ns;
	slow->cpu = bpf_get_smp_processor_id();
	slow->cause = member->cause;
	slow->tgid = tgid_of(targets.pid_namespace, next);
	slow->tid = tid_of(targets.pid_namespace, next);
	slow->prev_tgid = tgid_of(targets.pid_namespace, prev);
	slow->prev_tid = tid_of(targets.pid_namespace, prev);
	slow->prev_idle = BPF_CORE_READ(prev, pid) == 0;
	slow->without_quota = was_without_quota(member, next);
	bpf_core_read(&slow->comm, sizeof(slow->comm), &next->comm);
	bpf_core_read(&slow->prev_comm, sizeof(slow->prev_comm), &prev->comm);
	bpf_ringbuf_submit(slow, 0);
}

static __always_inline void member_left(struct member *member, struct task_struct *task)
{
	drop_stale_wait(member, task, bpf_ktime_get_ns());
}

static __always_inline void begin_wait(struct member *member, struct task_struct *task, enum wait_cause cause,
				       __u64 now)
{
	member->switches = switches_of(task);
	member->runnable_ns = now;
	member->cause = cause;
	member->unseen = 0;
	begin_without_quota(member, task);
}

static __always_inline void made_runnable(struct task_struct *task)
{
	struct member *member = member_of(task);
	struct runqlat_totals *sums;
	__u64 now;

	if (!member) {
		learn_clock(task);
		return;
	}
	now = bpf_ktime_get_ns();
	drop_stale_wait(member, task, now);
	/* Wakeups also reach tasks on a CPU, and tasks preempted half-way to sleep, which are waiting already. */
	if (member->runnable_ns || is_on_cpu(task))
		return;
	learn_clock(task);
	sums = totals_here();
	if (!sums || !is_followed(now)) {
		/* It was not ready throughout. */
		if (is_late(now))
			member->unseen = 0;
		return;
	}
	if (in_window(now))
		sums->wakeups++;
	begin_wait(member, task, CAUSE_WAKEUP, now);
}

static __always_inline void end_wait(struct cpu_history *cpu, struct task_struct *prev, struct task_struct *next,
				     __u64 now, struct runqlat_totals *sums)
{
	struct member *member = member_of(next);
	__u32 now_epoch = epoch & 1;
	struct culprit_key key = {};
	__u64 since, wait_ns;

	if (!member)
		return;
	drop_stale_wait(member, next, now);
	since = member->runnable_ns;
	member->runnable_ns = 0;
	if (!in_window(now))
		return;
	if (!since) {
		sums->under_way_at_start += member->unseen;
		member->unseen = 0;
		return;
	}
	if (!(config.causes & (1 << member->cause)))
		return;
	if (now < since) {
		__sync_fetch_and_add(&losses.negative, 1);
		return;
	}
	wait_ns = now - since;
	if (config.group_by == BY_MACHINE)
		add_to_whole(now_epoch, 0, wait_ns);
	else
		add_to_group_of(now_epoch, next, wait_ns);
	key.epoch = now_epoch;
	if (config.by_victim)
		key.victim = tgid_of(targets.pid_namespace, next);
	if (was_without_quota(member, next))
		blame(key, QUOTA_TID, 0, wait_ns, NULL);
	else
		blame_history(cpu, prev, key, since, now);
	if (config.slower_ns && wait_ns >= config.slower_ns)
		send_slow_wait(member, prev, next, wait_ns, now);
}

static __always_inline void leave_cpu(struct task_struct *task, bool runnable, __u32 state, __u64 now)
{
	struct member *member;

	/* Who sleeps is asked what it has missed when it wakes. */
	if (!runnable && !(state & TASK_DEAD))
		return;
	member = member_of(task);
	if (!member)
		return;
	drop_stale_wait(member, task, now);
	if (runnable)
		begin_wait(member, task, CAUSE_PREEMPTED, now);
	else
		/* The last that is seen of a group may be its end. */
		note_quotas(task, false);
}

/* It will not be there when user space comes. */
static __always_inline void dies_late(struct task_struct *task, __u32 state, __u64 now)
{
	struct member *member = state & TASK_DEAD ? member_of(task) : NULL;

	if (member)
		drop_stale_wait(member, task, now);
}

static __always_inline void task_switched(bool preempt, struct task_struct *prev, struct task_struct *next,
					  __u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct runqlat_totals *sums = totals_here();
	struct cpu_history *cpu;
	__u32 zero = 0;

	cpu = bpf_map_lookup_elem(&history, &zero);
	if (!sums || !cpu)
		return;
	if (!is_followed(now)) {
		if (is_late(now)) {
			outlast_window(next, now);
			dies_late(prev, state, now);
		}
		return;
	}
	if (in_window(now)) {
		sums->switches++;
		remember_slice(cpu, prev, now);
	}
	leave_cpu(prev, stays_runnable(prev, preempt, state), state, now);
	end_wait(cpu, prev, next, now, sums);
}

ON_SCHED_SWITCH(task_switched(preempt, prev, next, prev_state))

#include "wakeups.bpf.h"

/* Run before each window of several: waits that ended meanwhile are forgotten, those that began are found. */
SEC("iter/task")
int open_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;
	__u64 switches, since;

	if (!task)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	switches = BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
	if (is_on_cpu(task) || !is_queued(task)) {
		member->runnable_ns = 0;
		return 0;
	}
	if (member->runnable_ns && member->switches == switches)
		return 0;
	since = queued_since(task, bpf_ktime_get_ns());
	member->runnable_ns = since;
	member->switches = switches;
	member->cause = CAUSE_WAKEUP;
	member->unseen = !since;
	begin_without_quota(member, task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
