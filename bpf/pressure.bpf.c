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

/* Task storage. */
struct member {
	/* When the present phase began, or its stall did. */
	__u64 since_ns;
	__u64 lost_ns[STALLS];
	__u64 caused_ns;
	__u64 ios;
	/* The CPU's waited_ns when the task was switched in. */
	__u64 waited_at_ns;
	/* The task's switches when it left the CPU: if it has been switched since, that was hidden from us. */
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

#include "members.bpf.h"
#include "waits.bpf.h"
#include "stalls.bpf.h"
#include "stall_stacks.bpf.h"

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
	/* Phases whose end did not reach us; of those that were stalls, number and time, of which nothing more is known. */
	__u64 unseen;
	__u64 unseen_stalls[STALLS];
	__u64 unseen_ns[STALLS];
};

struct pressure_losses losses = {};

/* The ends of the latest interval and of the one before, set before the iterator runs. */
__u64 edge_ns = 0;
__u64 previous_edge_ns = 0;
__u64 block_errors = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} events SEC(".maps");

/* One task in one interval. */
struct task_stock {
	struct account account;
	__u64 cgroup_id;
	/* How long the wait that is open has lasted; 0: none. */
	__u64 open_ns;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u8 process_comm[16];
	/* What the open wait is for: 1 << enum stalled_on. */
	__u8 open;
	__u8 kernel_thread;
	__u8 exited;
	__u8 pad[5];
};

struct exited_key {
	__u64 start_ns;
	__u32 tid;
	__u32 pad;
};

/* Tasks that have ended since user space last looked */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct exited_key);
	__type(value, struct task_stock);
} exited SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct task_stock);
} stock_scratch SEC(".maps");

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

/* The counters that a task in this state belongs to. */
static __always_inline __u32 counts_of(struct member *member, bool throttled)
{
	if (member->phase == PHASE_WAITING)
		return 1 << (throttled ? COUNT_THROTTLED : COUNT_WAITING) |
		       (member->memory ? 1 << COUNT_MEMORY_WAITING : 0);
	if (member->phase == PHASE_ASLEEP)
		return (member->io ? 1 << COUNT_IO : 0) | (member->memory ? 1 << COUNT_MEMORY_ASLEEP : 0);
	return 0;
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
	__u64 passed = now > member->since_ns ? now - member->since_ns : 0;

	if (config.stacks)
		add_lost(member, member->pending_ns, now > edge_ns && member->since_ns < edge_ns ? now - edge_ns : passed);
	add_lost(member, member->lost_ns, passed);
	member->since_ns = now;
}

static __always_inline __u64 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

static __always_inline void leave_counters(struct member *member, __u64 now)
{
	recount(member->cpu, member->counted, 0, now);
	member->counted = 0;
}

static __always_inline void count_unseen(enum stalled_on stall, __u64 passed)
{
	__sync_fetch_and_add(&losses.unseen_stalls[stall], 1);
	__sync_fetch_and_add(&losses.unseen_ns[stall], passed);
}

/* Kernels that shield some tasks (a sandbox's own) run no BPF program while those are current: the phase ended at some
 * time that we do not know. Nothing of it counts for the task, though it has counted for the CPU.
 */
static __always_inline void drop_phase(struct member *member, __u64 now)
{
	__u64 passed = now > member->since_ns ? now - member->since_ns : 0;

	__sync_fetch_and_add(&losses.unseen, 1);
	if (member->phase == PHASE_WAITING)
		count_unseen(ON_CPU, passed);
	if (member->phase == PHASE_ASLEEP && member->io)
		count_unseen(ON_IO, passed);
	if (member->memory)
		count_unseen(ON_MEMORY, passed);
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

/* What a task does is looked up; an event in between is set right by the next one. */
static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	__u64 now = bpf_ktime_get_ns();

	member->since_ns = now;
	if (origin == MEMBER_FORKED) {
		member->phase = PHASE_ASLEEP;
		member->never_ran = 1;
		return;
	}
	read_usage(&member->reported, task);
	/* Running tasks are left unknown: when they began is. */
	if (is_on_cpu(task) || task_state(task) & TASK_DEAD)
		return;
	member->phase = is_queued(task) ? PHASE_WAITING : PHASE_ASLEEP;
	member->io = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
	member->memory = is_in_memstall(task);
	member->switches = switches_of(task);
	member->cpu = task_cpu(task);
	member->counted = counts_of(member, false);
	recount(member->cpu, 0, member->counted, now);
}

static __always_inline void member_left(struct member *member)
{
}

/* Everything but the CPU's counters. */
static __always_inline void switched_out(struct member *member, struct task_struct *task, bool preempt, __u32 state,
					 __u64 now)
{
	if (member->phase == PHASE_WAITING || member->phase == PHASE_ASLEEP)
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
	if (stays_runnable(preempt, state)) {
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

static __always_inline bool has_pending(struct member *member)
{
	return member->pending_ns[ON_CPU] || member->pending_ns[ON_MEMORY] || member->pending_ns[ON_IO];
}

static __always_inline void report_pending(struct member *member, struct stall_stack *key)
{
	for (int i = 0; i < STALLS; i++) {
		key->resource = i;
		add_weight(key, member->pending_ns[i]);
		member->pending_ns[i] = 0;
	}
}

/* A wait is over. The thread is not current yet. */
static __always_inline void resumed(struct member *member, struct task_struct *task)
{
	struct stall_stack key = {};

	if (!has_pending(member))
		return;
	member->kernel_stack = member->never_ran ? 0 : walk_other(task);
	if (config.walk_on_exit && !member->never_ran)
		return;
	describe_stack(&key, task, ROLE_VICTIM);
	key.kernel_stack = member->kernel_stack;
	key.user_stack = member->never_ran ? 0 : member->user_stack;
	report_pending(member, &key);
}

/* Where the task that is leaving the CPU is, and others waited behind it. */
static __always_inline void report_culprit(void *ctx, struct member *member, struct task_struct *task, __u64 caused_ns)
{
	struct stall_stack key = {};

	if (!caused_ns && config.walk_on_exit)
		return;
	describe_stack(&key, task, ROLE_CULPRIT);
	if (!walk_current(ctx, &key, task, caused_ns > 0))
		return;
	member->user_stack = key.user_stack;
	key.resource = ON_CPU;
	add_weight(&key, caused_ns);
}

SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct task_struct *task = current_task();
	struct member *member = is_switch ? member_of(task) : NULL;
	struct stall_stack key = {};

	if (!member || !has_pending(member))
		return 0;
	describe_stack(&key, task, ROLE_VICTIM);
	key.kernel_stack = member->kernel_stack;
	if (walk_current(ctx, &key, task, false))
		report_pending(member, &key);
	return 0;
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
	was_running = out && out->phase == PHASE_RUNNING;
	if (out) {
		switched_out(out, prev, preempt, state, now);
		out->cpu = cpu;
		joins = out->counted;
	}
	if (in)
		leaves = switched_in(in, next, cpu, now);
	bpf_spin_lock(&at->lock);
	pass_time(at, now);
	change_counts(at, joins, 1);
	change_counts(at, leaves, -1);
	at->busy = next->pid != 0;
	at->busy_memory = in && in->memory;
	waited_ns = at->waited_ns;
	bpf_spin_unlock(&at->lock);
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

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	task_switched(ctx, preempt, prev, next, prev_state);
	return 0;
}

/* fa2c3254d7cf (5.18) added prev_state: before, the state is read here and may race with a waker on another CPU. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch_pre_5_18, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	task_switched(ctx, preempt, prev, next, task_state(prev));
	return 0;
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

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	made_runnable(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	made_runnable(task);
	return 0;
}

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

static __always_inline void set_busy_memory(bool stalled, __u64 now)
{
	struct stalls *at = stalls_of(bpf_get_smp_processor_id());

	if (!at)
		return;
	bpf_spin_lock(&at->lock);
	pass_time(at, now);
	at->busy_memory = stalled;
	bpf_spin_unlock(&at->lock);
}

/* `marked`: the kernel has set in_memstall by now, if it is a stall at all (proactive reclaim is none). */
static __always_inline void reclaim_begins(bool marked)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	__u64 now = bpf_ktime_get_ns();

	if (!member || (marked && config.psi && !is_in_memstall(task)))
		return;
	count_event();
	settle(member, now);
	/* kswapd says each time that it wakes, not each time that it sleeps. */
	member->reclaims = marked ? member->reclaims + 1 : 1;
	member->memory = 1;
	set_busy_memory(true, now);
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
	__u64 now = bpf_ktime_get_ns();

	if (!member || !member->reclaims)
		return;
	settle(member, now);
	if (--member->reclaims)
		return;
	member->memory = 0;
	set_busy_memory(false, now);
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

/* The time since the last change, as settle would add it. */
static __always_inline void add_open_wait(struct account *account, struct member *member, __u64 now)
{
	struct stalls *at = stalls_of(member->cpu);
	__u64 passed = now > member->since_ns ? now - member->since_ns : 0;

	add_lost(member, account->lost_ns, passed);
	if (at && member->phase == PHASE_RUNNING) {
		account->caused_ns += at->waited_ns - member->waited_at_ns;
		if (at->counts[COUNT_WAITING] > 0 && now > at->since_ns)
			account->caused_ns += (now - at->since_ns) * at->counts[COUNT_WAITING];
	}
}

/* What has grown since the last visit. A value read while it changes may be too small: the next visit has the rest. */
#define TAKE(field)                                                                     \
	do {                                                                            \
		__u64 grown = total.field > reported->field ? total.field - reported->field : 0; \
		stock->account.field = grown;                                           \
		reported->field += grown;                                               \
		any |= grown;                                                           \
	} while (0)

/* Returns whether there is anything to tell. */
static __always_inline bool take_account(struct task_stock *stock, struct member *member, struct task_struct *task,
					 __u64 now)
{
	struct account *reported = &member->reported;
	struct account total = {};
	__u64 any = 0;

	for (int i = 0; i < STALLS; i++)
		total.lost_ns[i] = member->lost_ns[i];
	total.caused_ns = member->caused_ns;
	total.ios = member->ios;
	read_usage(&total, task);
	add_open_wait(&total, member, now);
	TAKE(lost_ns[ON_CPU]);
	TAKE(lost_ns[ON_MEMORY]);
	TAKE(lost_ns[ON_IO]);
	TAKE(caused_ns);
	TAKE(ios);
	TAKE(read_bytes);
	TAKE(written_bytes);
	TAKE(faults);
	return any;
}

static __always_inline void describe_task(struct task_stock *stock, struct task_struct *task)
{
	stock->tgid = tgid_of(targets.pid_namespace, task);
	stock->tid = tid_of(targets.pid_namespace, task);
	stock->cgroup_id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	stock->kernel_thread = !!(BPF_CORE_READ(task, flags) & PF_KTHREAD);
	bpf_core_read(&stock->comm, sizeof(stock->comm), &task->comm);
	BPF_CORE_READ_INTO(&stock->process_comm, task, group_leader, comm);
}

/* What has been hidden shows when what a task does is not what we take it for. In the first moments of a phase the kernel
 * itself is still at it.
 */
static __always_inline void correct(struct member *member, struct task_struct *task, __u64 now)
{
	bool on_cpu = is_on_cpu(task);

	if (member->phase == PHASE_DEAD || now < member->since_ns + 1000000)
		return;
	if (is_stale(member, task))
		drop_phase(member, now);
	else if (member->phase == PHASE_WAITING || member->phase == PHASE_ASLEEP) {
		if (on_cpu)
			drop_phase(member, now);
		else if (member->phase == PHASE_ASLEEP && is_queued(task))
			begin_waiting(member, task, now);
	} else if (member->phase == PHASE_RUNNING && !on_cpu) {
		drop_phase(member, now);
	}
}

/* Run now and then where switches are hidden. */
SEC("iter/task")
int correct_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member = task ? member_of(task) : NULL;

	if (member)
		correct(member, task, bpf_ktime_get_ns());
	return 0;
}

/* Waits that began in an earlier interval were reported there up to its end. */
static __always_inline void report_open_wait(struct member *member, struct task_struct *task)
{
	__u64 from = member->since_ns > previous_edge_ns ? member->since_ns : previous_edge_ns;
	struct stall_stack key = {};
	__u64 open_ns[STALLS] = {};

	if (edge_ns <= from)
		return;
	add_lost(member, open_ns, edge_ns - from);
	if (!(open_ns[ON_CPU] | open_ns[ON_MEMORY] | open_ns[ON_IO]))
		return;
	describe_stack(&key, task, ROLE_VICTIM);
	/* The interval that has just ended. */
	key.epoch = (epoch & 1) ^ 1;
	key.kernel_stack = walk_other(task);
	for (int i = 0; i < STALLS; i++) {
		key.resource = i;
		add_weight(&key, open_ns[i]);
	}
}

/* Run at the end of each interval, and once before the first. */
SEC("iter/task")
int take_stock(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_stock *stock;
	struct member *member;
	__u32 zero = 0;

	stock = bpf_map_lookup_elem(&stock_scratch, &zero);
	if (!task || !stock || !edge_ns)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	correct(member, task, edge_ns);
	if (config.stacks && previous_edge_ns && member->phase != PHASE_RUNNING)
		report_open_wait(member, task);
	__builtin_memset(stock, 0, sizeof(*stock));
	if (!take_account(stock, member, task, edge_ns))
		return 0;
	describe_task(stock, task);
	if (member->phase == PHASE_WAITING)
		stock->open = 1 << ON_CPU;
	else if (member->phase == PHASE_ASLEEP)
		stock->open = (member->io ? 1 << ON_IO : 0) | (member->memory ? 1 << ON_MEMORY : 0);
	if (stock->open && edge_ns > member->since_ns)
		stock->open_ns = edge_ns - member->since_ns;
	bpf_seq_write(ctx->meta->seq, stock, sizeof(*stock));
	return 0;
}

/* In the context of the task that ends. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(account_exit, struct task_struct *task)
{
	struct exited_key key = { .start_ns = BPF_CORE_READ(task, start_time), .tid = BPF_CORE_READ(task, pid) };
	struct member *member = member_of(task);
	struct task_stock stock = {};
	__u64 now = bpf_ktime_get_ns();

	if (!member)
		return 0;
	if (member->phase == PHASE_WAITING || member->phase == PHASE_ASLEEP)
		drop_phase(member, now);
	if (!take_account(&stock, member, task, now))
		return 0;
	describe_task(&stock, task);
	stock.exited = 1;
	if (bpf_map_update_elem(&exited, &key, &stock, BPF_ANY))
		__sync_fetch_and_add(&losses.exited_full, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
