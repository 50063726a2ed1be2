/* SPDX-License-Identifier: MIT */
/* stocktaking.bpf.h: hands out, interval by interval, what each task lost, caused and used. */
#ifndef __STOCKTAKING_BPF_H__
#define __STOCKTAKING_BPF_H__

#include "maps.bpf.h"
#include "stall_phases.bpf.h"
#include "stall_stacks.bpf.h"

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
MAP(HASH, exited, struct exited_key, struct task_stock, 16384);

/* How many that were, ever. */
__u64 exits = 0;

PER_CPU(stock_scratch, struct task_stock);

/* The time since the last change, as settle would add it. */
static __always_inline void add_open_wait(struct account *account, struct member *member, __u64 now)
{
	struct stalls *at = stalls_of(member->cpu);

	add_lost(member, account->lost_ns, passed_ns(member->since_ns, now));
	if (at && member->phase == PHASE_RUNNING) {
		account->caused_ns += at->waited_ns - member->waited_at_ns;
		if (at->counts[COUNT_WAITING] > 0)
			account->caused_ns += passed_ns(at->since_ns, now) * at->counts[COUNT_WAITING];
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

/* In the first moments of a phase the kernel itself is still at it. */
#define SWITCHING_NS 1000000

/* A missed event shows when what a task does is not what it is taken for. */
static __always_inline void check_phase(struct member *member, struct task_struct *task, __u64 now)
{
	bool on_cpu = is_on_cpu(task);

	if (member->phase == PHASE_UNKNOWN || member->phase == PHASE_DEAD || now < member->since_ns + SWITCHING_NS)
		return;
	if (on_cpu != (member->phase == PHASE_RUNNING) || is_stale(member, task))
		drop_phase(member, now);
	else if (member->phase == PHASE_ASLEEP && is_queued(task))
		/* The event of the wakeup may be still to come. */
		begin_waiting(member, task, now);
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
	check_phase(member, task, edge_ns);
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
	__sync_fetch_and_add(&exits, 1);
	return 0;
}

#endif
