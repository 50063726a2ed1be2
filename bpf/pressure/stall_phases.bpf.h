/* SPDX-License-Identifier: MIT */
/* stall_phases.bpf.h: what a task is doing, what it loses by that, and what to do where an event was missed. */
#ifndef __STALL_PHASES_BPF_H__
#define __STALL_PHASES_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"

enum stalled_on {
	ON_CPU = 0,
	ON_MEMORY,
	ON_IO,
	STALLS,
};

enum phase {
	/* Not known until its first event. */
	PHASE_UNKNOWN = 0,
	PHASE_RUNNING,
	PHASE_WAITING,
	PHASE_ASLEEP,
	PHASE_DEAD,
};

/* What a task has lost, caused and used up to some moment; only differences mean anything. */
struct account {
	__u64 lost_ns[STALLS];
	/* Time that others waited while it ran, each for itself. */
	__u64 caused_ns;
	/* I/O that it submitted; bytes as the kernel accounts them: reads to who reads, writes to who dirtied. */
	__u64 ios;
	__u64 read_bytes;
	__u64 written_bytes;
	/* Page faults. */
	__u64 faults;
};

/* Per task. */
struct member {
	/* When the present phase began, or its stall did. */
	__u64 since_ns;
	__u64 lost_ns[STALLS];
	__u64 caused_ns;
	__u64 ios;
	/* The CPU's waited_ns when the task was switched in. */
	__u64 waited_at_ns;
	/* The task's switches when it left the CPU: if it has been switched since, that was missed. */
	__u64 switches;
	/* With stacks: what the wait that is ending has cost since the last edge, and its stack as far as walked. */
	__u64 pending_ns[STALLS];
	__u64 kernel_stack;
	__u64 user_stack;
	/* What the iterator has handed out. */
	struct account reported;
	/* Whose counters it is in, and in which, 1 << enum stall_count. */
	__u32 cpu;
	__u32 counted;
	__u8 phase;
	/* Asleep for I/O. */
	__u8 io;
	/* Stalled on memory. */
	__u8 memory;
	/* Reclaims that it is in, by tracepoint. */
	__u8 reclaims;
	/* It starts in ret_from_fork, not in __schedule. */
	__u8 never_ran;
	__u8 pad[3];
};

#include "maps.bpf.h"
#include "members.bpf.h"
#include "waits.bpf.h"
#include "stalls.bpf.h"

struct pressure_config {
	/* The kernel maintains in_memstall. */
	__u32 psi;
	__u32 stacks;
	/* User stacks are walked in sched_exit_tp. */
	__u32 walk_on_exit;
};

const volatile struct pressure_config config = {};

struct pressure_losses {
	/* Tasks that ended and found no room in `exited`. */
	__u64 exited_full;
	/* Switches and wakeups that were missed, and the time of the stalls that they began or ended. */
	__u64 unseen;
	__u64 unseen_ns;
};

struct pressure_losses losses = {};

/* The ends of the latest interval and of the one before, set before the iterator runs. */
__u64 edge_ns = 0;
__u64 previous_edge_ns = 0;

PER_CPU(events, __u64);

static __always_inline void count_event(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&events, &zero);

	if (count)
		(*count)++;
}

static __always_inline bool is_in_memstall(struct task_struct *task)
{
	return bpf_core_field_exists(task->in_memstall) && BPF_CORE_READ_BITFIELD(task, in_memstall);
}

/* The same of a task that the verifier does not know for one: current, on kernels before 5.11. */
static __always_inline bool is_current_in_memstall(struct task_struct *current)
{
	return bpf_core_field_exists(current->in_memstall) && BPF_CORE_READ_BITFIELD_PROBED(current, in_memstall);
}

/* The counters that a task in this state belongs to. */
static __always_inline __u32 counts_of(struct member *member, bool throttled)
{
	if (member->phase != PHASE_WAITING)
		return 0;
	return 1 << (throttled ? COUNT_THROTTLED : COUNT_WAITING);
}

/* Time in the present phase goes to what it is lost to. */
static __always_inline void add_lost(struct member *member, __u64 lost_ns[STALLS], __u64 passed)
{
	if (member->phase == PHASE_WAITING)
		lost_ns[ON_CPU] += passed;
	if (member->phase == PHASE_ASLEEP && member->io)
		lost_ns[ON_IO] += passed;
	if (member->memory)
		lost_ns[ON_MEMORY] += passed;
}

/* The time since the last change goes to what held in it. */
static __always_inline void settle(struct member *member, __u64 now)
{
	__u64 passed = passed_ns(member->since_ns, now);

	if (config.stacks)
		add_lost(member, member->pending_ns, now > edge_ns && member->since_ns < edge_ns ? now - edge_ns : passed);
	add_lost(member, member->lost_ns, passed);
	member->since_ns = now;
}

static __always_inline void leave_counters(struct member *member, __u64 now)
{
	recount(member->cpu, member->counted, 0, now);
	member->counted = 0;
}

static __always_inline bool is_stalled(const struct member *member)
{
	return member->phase == PHASE_WAITING || (member->phase == PHASE_ASLEEP && member->io) || member->memory;
}

/* Events are missed where the program would nest: the kernel does not run it. The phase ended at some unknown time, and none of it
 * counts for the task, though it has counted for the CPU.
 */
static __always_inline void drop_phase(struct member *member, __u64 now)
{
	__u64 passed = passed_ns(member->since_ns, now);

	__sync_fetch_and_add(&losses.unseen, 1);
	if (is_stalled(member))
		__sync_fetch_and_add(&losses.unseen_ns, passed);
	leave_counters(member, now);
	member->since_ns = now;
	member->phase = PHASE_UNKNOWN;
	member->memory = 0;
}

/* It has been on a CPU since it began to wait. */
static __always_inline bool is_stale(struct member *member, struct task_struct *task)
{
	return member->phase == PHASE_WAITING && member->switches != switches_of(task);
}

static __always_inline void read_usage(struct account *account, struct task_struct *task)
{
	account->faults = BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt);
	if (bpf_core_field_exists(task->ioac)) {
		account->read_bytes = BPF_CORE_READ(task, ioac.read_bytes);
		account->written_bytes = BPF_CORE_READ(task, ioac.write_bytes);
	}
}

static __always_inline enum phase phase_now(struct task_struct *task)
{
	if (task_state(task) & TASK_DEAD)
		return PHASE_DEAD;
	if (is_on_cpu(task))
		return PHASE_RUNNING;
	return is_queued(task) ? PHASE_WAITING : PHASE_ASLEEP;
}

/* What a task that is off its CPU does is looked up; an event in between is set right by the next one. */
static __always_inline void begin_phase(struct member *member, struct task_struct *task, enum phase phase, __u64 now)
{
	member->phase = phase;
	member->io = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	member->memory = is_in_memstall(task);
	member->switches = switches_of(task);
	member->cpu = task_cpu(task);
	member->counted = counts_of(member, false);
	recount(member->cpu, 0, member->counted, now);
}

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	__u64 now = bpf_ktime_get_ns();
	enum phase phase;

	member->since_ns = now;
	if (origin == MEMBER_FORKED) {
		member->phase = PHASE_ASLEEP;
		member->never_ran = 1;
		return;
	}
	read_usage(&member->reported, task);
	phase = phase_now(task);
	/* Running tasks are left unknown: when they began is. */
	if (phase == PHASE_WAITING || phase == PHASE_ASLEEP)
		begin_phase(member, task, phase, now);
}

static __always_inline void member_left(struct member *member, struct task_struct *task)
{
}

static __always_inline void begin_waiting(struct member *member, struct task_struct *task, __u64 now)
{
	if (member->phase == PHASE_RUNNING || is_stale(member, task))
		drop_phase(member, now);
	else
		settle(member, now);
	leave_counters(member, now);
	member->phase = PHASE_WAITING;
	member->io = 0;
	member->switches = switches_of(task);
	member->cpu = task_cpu(task);
	member->counted = counts_of(member, false);
	recount(member->cpu, 0, member->counted, now);
}

#endif
