/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime: how long threads are off the CPU, split into blocked and runnable, by stack and by what they waited for.
 *
 * Every target is in one phase at any time: running → blocked → runnable → running. sched_switch and sched_wakeup move
 * it on, and each phase's length is added up, so that a thread's phases sum to its time inside the window.
 *
 * Stacks are taken when the thread is back on a CPU and the interval's length is known: what is too short to report
 * costs no walk. A thread's stacks do not change while it is off the CPU. The kernel stack is recognised or walked at
 * switch-in (kernel_stack_cache.bpf.h); the user stack in the thread's own context at the end of __schedule()
 * (sched_exit_tp, Linux 6.18), with the run-queue lock dropped. Older kernels have no such place: there the user stack is
 * walked at switch-out, where the thread is current.
 *
 * Not seen: a first wait for a CPU has no stack (the thread has not run yet).
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"

enum phase {
	/* A target since before the window, no event yet: its first event tells what it has been doing. */
	PHASE_UNKNOWN = 0,
	PHASE_RUNNING,
	PHASE_BLOCKED,
	PHASE_RUNNABLE,
	PHASE_DEAD,
};

/* Per task: what a target is doing. */
struct member {
	__u64 joined_ns;
	/* When the present phase began. */
	__u64 since_ns;
	/* When it left the CPU. */
	__u64 off_ns;
	/* When it became runnable after that. */
	__u64 runnable_ns;
	/* The interval that has just ended, not yet reported; 0: none. */
	__u64 ended_off_ns;
	__u64 ended_runqueue_ns;
	/* Interned stacks: the waker's record; without sched_exit_tp also the own user stack. */
	__u64 waker;
	__u64 user_stack;
	/* Of the interval that has just ended. */
	__u64 kernel_stack;
	__u32 state;
	__u8 phase;
	__u8 wait_flags;
	__u8 never_ran;
	__u8 pad;
};

#include "members.bpf.h"
#include "kernel_stack_cache.bpf.h"
#include "stacks.bpf.h"
#include "waits.bpf.h"
#include "wakers.bpf.h"

#define MAX_ROWS 65536
/* --state 0, as in bcc: still runnable. */
#define STATE_ANY (~0U)

struct offcputime_config {
	struct stack_config stacks;
	__u64 min_ns;
	__u64 max_ns;
	/* Bits of the state at switch-out, any of which must be set; STATE_ANY: no filter. */
	__u32 state_mask;
	__u32 wakers;
	/* User stacks are walked in sched_exit_tp. */
	__u32 walk_on_exit;
	__u32 pad;
};

const volatile struct offcputime_config config = {};

struct offcputime_key {
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	__u64 kernel_stack;
	__u64 user_stack;
	__u64 waker;
	struct wait_call call;
	__u8 wait_flags;
	__u8 pad[7];
};

struct offcputime_value {
	__u64 blocked_ns;
	__u64 runqueue_ns;
	__u64 count;
	__u64 max_ns;
};

/* Where the targets' time inside the window went, whether reported or filtered. */
struct offcputime_totals {
	__u64 oncpu_ns;
	__u64 runqueue_ns;
	__u64 blocked_ns;
	/* Of which nothing is known: the switch that began or ended it did not reach us. */
	__u64 unseen_ns;
	/* Sum of the targets' time in the window, counted when they exit. */
	__u64 lifetime_ns;
	__u64 threads_exited;
	/* Switches and wakeups of targets. */
	__u64 events;
	/* Intervals too short, too long or in the wrong state. */
	__u64 filtered;
	__u64 filtered_ns;
};

struct offcputime_losses {
	__u64 rows_full;
	__u64 rows_full_ns;
	/* Intervals whose stack could not be walked in time. */
	__u64 unreported;
	__u64 unreported_ns;
	/* A switch-in without the wakeup before it, or a switch-out of a thread that was not running. */
	__u64 out_of_order;
	/* A clock that went backwards. */
	__u64 negative;
};

struct offcputime_losses losses = {};

/* (thread, stacks, wait) → time */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROWS);
	__type(key, struct offcputime_key);
	__type(value, struct offcputime_value);
} offcpu_time SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct offcputime_totals);
} totals SEC(".maps");

/* Walks of the switch and of the waker may nest on one CPU: an interrupt wakes somebody during the first. */
enum scratch_slot {
	SCRATCH_SWITCH,
	SCRATCH_WAKER,
};

static __always_inline struct offcputime_totals *totals_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

static __always_inline __u64 elapsed(__u64 from, __u64 to)
{
	if (to >= from)
		return to - from;
	__sync_fetch_and_add(&losses.negative, 1);
	return 0;
}

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	__u64 now = bpf_ktime_get_ns();

	member->joined_ns = member->since_ns = member->off_ns = member->runnable_ns = now;
	if (origin == MEMBER_FORKED) {
		/* Until it is put on a run queue; from then on it waits for nothing but a CPU. */
		member->phase = PHASE_BLOCKED;
		member->wait_flags = WAIT_RUNNABLE;
		member->never_ran = 1;
	} else if (origin == MEMBER_RENAMED) {
		bool queued = is_queued(task);

		member->phase = is_on_cpu(task) ? PHASE_RUNNING : queued ? PHASE_RUNNABLE : PHASE_BLOCKED;
	}
}

/* Nothing that happened before the window is known: its first event in it tells what a task had been doing. */
static __always_inline bool is_unsettled(struct member *member)
{
	return member->phase == PHASE_UNKNOWN || member->joined_ns < window_start_ns;
}

/* Starts at the window's edge, in the phase that the first event implies. */
static __always_inline void settle(struct member *member, enum phase implied)
{
	if (!is_unsettled(member))
		return;
	if (member->joined_ns < window_start_ns)
		member->joined_ns = member->since_ns = member->off_ns = member->runnable_ns = window_start_ns;
	member->phase = implied;
	member->never_ran = 0;
}

/* It stops being a target while it lives. */
static __always_inline void member_left(struct member *member)
{
	struct offcputime_totals *sums = totals_here();
	__u64 now = bpf_ktime_get_ns();

	if (!sums || !in_window(now) || member->phase == PHASE_DEAD)
		return;
	settle(member, PHASE_RUNNING);
	if (member->phase == PHASE_RUNNING)
		sums->oncpu_ns += elapsed(member->since_ns, now);
	else if (member->phase == PHASE_RUNNABLE)
		sums->runqueue_ns += elapsed(member->since_ns, now);
	else
		sums->blocked_ns += elapsed(member->since_ns, now);
	sums->lifetime_ns += elapsed(member->joined_ns, now);
}

/* Kernels that shield some tasks (a sandbox's own) run no BPF program while those are current: switches between them and
 * targets are invisible.
 */
static __always_inline void count_unseen(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	__sync_fetch_and_add(&losses.out_of_order, 1);
	sums->unseen_ns += elapsed(member->since_ns, now);
}

static __always_inline void switched_out(void *ctx, struct task_struct *task, bool preempt, __u32 state, __u64 now,
					 struct offcputime_totals *sums)
{
	struct member *member = member_of(task);
	struct stack_scratch *scratch;

	if (!member)
		return;
	settle(member, PHASE_RUNNING);
	sums->events++;
	if (member->phase == PHASE_RUNNING)
		sums->oncpu_ns += elapsed(member->since_ns, now);
	else
		count_unseen(member, now, sums);
	member->since_ns = member->off_ns = member->runnable_ns = now;
	if (member->ended_off_ns) {
		__sync_fetch_and_add(&losses.unreported, 1);
		__sync_fetch_and_add(&losses.unreported_ns, member->ended_off_ns);
		member->ended_off_ns = 0;
	}
	if (!preempt && (state & TASK_DEAD)) {
		member->phase = PHASE_DEAD;
		sums->lifetime_ns += elapsed(member->joined_ns, now);
		sums->threads_exited++;
		return;
	}
	member->state = state;
	member->wait_flags = wait_flags_of(task, preempt, state);
	member->phase = member->wait_flags & WAIT_RUNNABLE ? PHASE_RUNNABLE : PHASE_BLOCKED;
	if (config.walk_on_exit || config.stacks.no_user)
		return;
	scratch = scratch_at(SCRATCH_SWITCH);
	if (scratch)
		member->user_stack =
			user_stack(SCRATCH_SWITCH, scratch, task, tgid_of(targets.pid_namespace, task));
}

static __always_inline void made_runnable(struct task_struct *task, __u64 now)
{
	struct member *member = member_of(task);
	struct offcputime_totals *sums = totals_here();

	if (!member || !sums)
		return;
	/* Wakeups also reach tasks that are on a CPU or were preempted half-way to sleep: nothing changes for those. */
	if (is_unsettled(member))
		settle(member, is_on_cpu(task) ? PHASE_RUNNING : PHASE_BLOCKED);
	sums->events++;
	if (member->phase != PHASE_BLOCKED)
		return;
	sums->blocked_ns += elapsed(member->since_ns, now);
	member->since_ns = member->runnable_ns = now;
	member->phase = PHASE_RUNNABLE;
}

static __always_inline bool is_wanted_state(struct member *member)
{
	__u32 mask = config.state_mask;

	if (mask == STATE_ANY)
		return true;
	if (member->wait_flags & WAIT_RUNNABLE)
		return mask == 0;
	/* States are composite: TASK_KILLABLE is 0x102, and TASK_FREEZABLE, 0x2000, may come on top. */
	return member->state & mask;
}

/* Closes the interval; returns whether it is to be reported. */
static __always_inline bool switched_in(struct member *member, __u64 now, struct offcputime_totals *sums)
{
	__u64 off_ns;

	settle(member, PHASE_RUNNABLE);
	sums->events++;
	if (member->phase == PHASE_BLOCKED) {
		__sync_fetch_and_add(&losses.out_of_order, 1);
		sums->blocked_ns += elapsed(member->since_ns, now);
		member->runnable_ns = now;
	} else if (member->phase == PHASE_RUNNABLE) {
		sums->runqueue_ns += elapsed(member->since_ns, now);
	} else {
		count_unseen(member, now, sums);
		member->since_ns = now;
		return false;
	}
	member->phase = PHASE_RUNNING;
	member->since_ns = now;
	off_ns = elapsed(member->off_ns, now);
	if (off_ns < config.min_ns || off_ns > config.max_ns || !is_wanted_state(member)) {
		sums->filtered++;
		sums->filtered_ns += off_ns;
		return false;
	}
	member->ended_off_ns = off_ns;
	member->ended_runqueue_ns = elapsed(member->runnable_ns, now);
	return true;
}

static __always_inline void add_row(const struct offcputime_key *key, __u64 off_ns, __u64 runqueue_ns)
{
	struct offcputime_value first = {
		.blocked_ns = off_ns - runqueue_ns,
		.runqueue_ns = runqueue_ns,
		.count = 1,
		.max_ns = off_ns,
	};
	struct offcputime_value *value = bpf_map_lookup_elem(&offcpu_time, key);
	long err;

	if (!value) {
		err = bpf_map_update_elem(&offcpu_time, key, &first, BPF_NOEXIST);
		if (!err)
			return;
		value = bpf_map_lookup_elem(&offcpu_time, key);
	}
	if (!value) {
		__sync_fetch_and_add(&losses.rows_full, 1);
		__sync_fetch_and_add(&losses.rows_full_ns, off_ns);
		return;
	}
	/* A row belongs to one thread, which is on one CPU: nobody else adds to it. */
	value->blocked_ns += off_ns - runqueue_ns;
	value->runqueue_ns += runqueue_ns;
	value->count++;
	if (off_ns > value->max_ns)
		value->max_ns = off_ns;
}

static __always_inline void report(struct member *member, struct task_struct *task, __u64 kernel, __u64 user)
{
	struct offcputime_key key = {
		.tgid = tgid_of(targets.pid_namespace, task),
		.tid = tid_of(targets.pid_namespace, task),
		.kernel_stack = kernel,
		.user_stack = user,
		.wait_flags = member->wait_flags,
		.call = { .syscall = NO_SYSCALL },
	};

	if (config.wakers && !(member->wait_flags & WAIT_RUNNABLE))
		key.waker = member->waker;
	if (!(member->wait_flags & WAIT_KERNEL_THREAD))
		key.call = wait_call_of(task);
	bpf_core_read(&key.comm, sizeof(key.comm), &task->comm);
	add_row(&key, member->ended_off_ns, member->ended_runqueue_ns);
	member->ended_off_ns = 0;
	member->waker = 0;
}

static __always_inline __u64 syscall_of(struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);

	return task->flags & PF_KTHREAD ? -1 : syscall_number(regs);
}

/* Of a task that is about to run. Walked from outside, it has neither the scheduler's frames nor ours. */
static __always_inline __u64 resumed_kernel_stack(struct task_struct *task)
{
	struct stack_scratch *scratch = scratch_at(SCRATCH_SWITCH);
	struct stack_record *stack;
	__u64 syscall, print, id;
	long bytes;

	if (!scratch || config.stacks.no_kernel)
		return 0;
	stack = &scratch->record;
	syscall = syscall_of(task);
	print = kernel_stack_print(task, syscall);
	id = walked_stack(print);
	if (id)
		return id;
	bytes = bpf_get_task_stack(task, stack->addresses, sizeof(stack->addresses), 0);
	id = intern_kernel_stack(stack, bytes);
	if (id && syscall < SYSCALLS_MAX)
		learn_dispatcher(stack->addresses, stack->depth);
	remember_walk(print, id);
	return id;
}

static __always_inline void task_switched(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
					  __u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct offcputime_totals *sums = totals_here();
	struct member *member;

	if (!sums || !in_window(now))
		return;
	switched_out(ctx, prev, preempt, state, now, sums);
	member = member_of(next);
	if (!member || !switched_in(member, now, sums))
		return;
	if (member->never_ran) {
		/* It starts in ret_from_fork, not in __schedule: sched_exit_tp will not see it. */
		member->never_ran = 0;
		report(member, next, 0, 0);
		return;
	}
	member->kernel_stack = resumed_kernel_stack(next);
	if (!config.walk_on_exit)
		report(member, next, member->kernel_stack, member->user_stack);
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

/* The switch-in was hidden from us, but the task itself is not: close its interval here, some 100 ns late. */
static __always_inline bool resumed_unseen(void *ctx, struct member *member, struct stack_scratch *scratch)
{
	__u64 now = bpf_ktime_get_ns();
	struct offcputime_totals *sums = totals_here();

	if (member->phase != PHASE_BLOCKED && member->phase != PHASE_RUNNABLE)
		return false;
	if (!sums || !in_window(now) || !switched_in(member, now, sums))
		return false;
	member->kernel_stack = config.stacks.no_kernel ? 0 : kernel_stack(ctx, scratch);
	return true;
}

SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit, bool is_switch)
{
	struct task_struct *task = current_task();
	struct stack_scratch *scratch;
	struct member *member;
	__u64 user = 0;

	if (!is_switch)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	scratch = scratch_at(SCRATCH_SWITCH);
	if (!scratch)
		return 0;
	if (!member->ended_off_ns && !resumed_unseen(ctx, member, scratch))
		return 0;
	if (!config.stacks.no_user)
		user = user_stack(SCRATCH_SWITCH, scratch, task, tgid_of(targets.pid_namespace, task));
	report(member, task, member->kernel_stack, user);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();

	if (in_window(now))
		made_runnable(task, now);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();

	if (in_window(now))
		made_runnable(task, now);
	return 0;
}

/* Runs in the waker's context, before the wakeup itself: the last one before the task runs is the one that counts. */
SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct stack_scratch *scratch = scratch_at(SCRATCH_WAKER);
	struct member *member = member_of(task);

	if (scratch && member && in_window(bpf_ktime_get_ns()))
		member->waker = waker_record(ctx, SCRATCH_WAKER, scratch, &config.stacks);
	return 0;
}

/* What the closing iterator says of a target: the phase that is open when the window ends. */
struct open_phase {
	/* Length of the phase, all of which is inside the window. */
	__u64 phase_ns;
	__u64 lifetime_ns;
	/* The interval off the CPU that is still open, as far as it lies inside the window. */
	__u64 blocked_ns;
	__u64 runqueue_ns;
	__u64 waker;
	/* User registers: the user stack of a task that is not current is walked from outside. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u32 tgid;
	__u32 tid;
	__u8 comm[16];
	struct wait_call call;
	__u8 phase;
	__u8 wait_flags;
	/* Within -m, -M and --state. */
	__u8 wanted;
	/* `ip` is any instruction, not the one after a system call. */
	__u8 exact;
	/* Number of kernel addresses that follow, leaf first. */
	__u32 depth;
};

struct open_phase_record {
	struct open_phase open;
	__u64 addresses[MAX_STACK_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct open_phase_record);
} closing SEC(".maps");

static __always_inline enum phase phase_now(struct task_struct *task)
{
	if (is_on_cpu(task))
		return PHASE_RUNNING;
	return is_queued(task) ? PHASE_RUNNABLE : PHASE_BLOCKED;
}

static __always_inline void describe_interval(struct open_phase *open, struct member *member)
{
	__u64 end = window_end_ns, off_ns;

	if (member->phase == PHASE_BLOCKED) {
		open->blocked_ns = elapsed(member->off_ns, end);
	} else {
		open->blocked_ns = elapsed(member->off_ns, member->runnable_ns);
		open->runqueue_ns = elapsed(member->runnable_ns, end);
	}
	off_ns = open->blocked_ns + open->runqueue_ns;
	open->wanted = off_ns >= config.min_ns && off_ns <= config.max_ns && is_wanted_state(member);
}

static __always_inline void describe_wait(struct open_phase *open, struct member *member, struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct user_regs copied;

	open->waker = member->waker;
	open->wait_flags = member->wait_flags;
	open->call.syscall = NO_SYSCALL;
	if (member->wait_flags & WAIT_KERNEL_THREAD)
		return;
	open->call = wait_call_of(task);
	bpf_probe_read_kernel(&copied, sizeof(copied), regs);
	open->ip = user_ip(&copied);
	open->sp = user_sp(&copied);
	open->bp = user_fp(&copied);
	open->exact = goes_on_anywhere(regs, &copied);
}

/* A target without any event in the window has done all the time what it is doing now. */
static __always_inline void settle_at_end(struct member *member, struct task_struct *task)
{
	if (!is_unsettled(member))
		return;
	settle(member, phase_now(task));
	member->state = task_state(task);
	member->wait_flags = wait_flags_of(task, member->phase != PHASE_BLOCKED, member->state);
}

static __always_inline long open_kernel_stack(struct task_struct *task, struct open_phase_record *record)
{
	long bytes;

	if (config.stacks.no_kernel)
		return 0;
	bytes = bpf_get_task_stack(task, record->addresses, sizeof(record->addresses), 0);
	return bytes > 0 ? bytes : 0;
}

/* Run once, after the window's end: intervals that are still open are the longest of all. */
SEC("iter/task")
int close_members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct open_phase_record *record;
	struct member *member;
	__u32 zero = 0;
	__u64 bytes = 0;

	record = bpf_map_lookup_elem(&closing, &zero);
	if (!task || !record || !window_end_ns)
		return 0;
	member = member_of(task);
	if (!member || member->phase == PHASE_DEAD || member->joined_ns >= window_end_ns ||
	    (task_state(task) & TASK_DEAD && is_unsettled(member)))
		return 0;
	settle_at_end(member, task);

	__builtin_memset(&record->open, 0, sizeof(record->open));
	record->open.tgid = tgid_of(targets.pid_namespace, task);
	record->open.tid = tid_of(targets.pid_namespace, task);
	bpf_core_read(&record->open.comm, sizeof(record->open.comm), &task->comm);
	record->open.phase = member->phase;
	record->open.phase_ns = elapsed(member->since_ns, window_end_ns);
	record->open.lifetime_ns = elapsed(member->joined_ns, window_end_ns);
	if (member->phase != PHASE_RUNNING) {
		describe_interval(&record->open, member);
		describe_wait(&record->open, member, task);
		bytes = open_kernel_stack(task, record);
	}
	/* Never more; written so that 5.10's verifier, which loses bounds through copies, sees it. */
	if (bytes > sizeof(record->addresses))
		bytes = 0;
	record->open.depth = bytes / sizeof(__u64);
	bytes += sizeof(record->open);
	barrier_var(bytes);
	if (bytes <= sizeof(*record))
		bpf_seq_write(ctx->meta->seq, record, bytes);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
