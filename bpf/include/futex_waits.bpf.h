/* SPDX-License-Identifier: MIT */
/* futex_waits.bpf.h: waits on futexes, from the moment a thread leaves its CPU inside a futex call to the call's return.
 *
 * A call that does not sleep is no wait: the word had changed meanwhile (raced). The scheduler's events tell when a thread
 * slept, when and by whom it was woken and when it ran again; the call's return tells how it ended, and there, in the
 * waiter's own context and with the length known, the stack is walked.
 */
#ifndef __FUTEX_WAITS_BPF_H__
#define __FUTEX_WAITS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "futex_requeue.bpf.h"
#include "futex_state.bpf.h"
#include "lock_counts.bpf.h"
#include "members.bpf.h"
#include "stacks.bpf.h"
#include "waits.bpf.h"
#include "wakers.bpf.h"

#define EINTR 4
#define EAGAIN 11
#define ETIMEDOUT 110
/* include/linux/errno.h, before the signal's delivery turns it into EINTR or another try. */
#define ERESTARTSYS 512
#define ERESTART_RESTARTBLOCK 516

struct futex_losses {
	/* Calls that slept without our seeing it, and calls whose return was not seen. */
	__u64 unseen;
	/* Locks that found no room in `futex_locks`: their class is a guess. */
	__u64 undescribed;
	/* No scratch for the stack. */
	__u64 unwalked;
};

struct futex_losses futex_losses = {};
/* Waits that ended, for the closing line. */
__u64 futex_events = 0;
/* Grows when a target is a 32-bit program: the returns of its calls need another hook. */
__u64 futex_compat_tasks = 0;
/* User space has attached that. */
__u32 futex_compat_returns = 0;

/* What is known of a lock besides its sums. */
struct futex_lock {
	struct lock_evidence evidence;
	/* Interned: process and address; user space looks up what is mapped there. */
	__u64 address_id;
	/* Of the first wait. */
	__u64 user_stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOCKS);
	__type(key, struct lock_id);
	__type(value, struct futex_lock);
} futex_locks SEC(".maps");

/* parking_lot waits on a word of the thread, not of the lock: such waits are told apart by where they come from. */
#define PARKED_VALUE 1

static __always_inline bool is_parked(const struct futex_call *call)
{
	return call->operation == FUTEX_WAIT && call->value == PARKED_VALUE && !(call->flags & FUTEX_IS_SHARED);
}

/* `class` and `confidence` of a futex are its operation and flags until user space has judged. */
static __always_inline void identify_futex(struct futex_wait *futex, struct task_struct *task)
{
	struct lock_id *lock = &futex->wait.lock;

	__builtin_memset(lock, 0, sizeof(*lock));
	lock->address = futex->call.address;
	lock->object = is_parked(&futex->call) ? futex->wait.user_stack : 0;
	lock->tgid = tgid_of(targets.pid_namespace, task);
	lock->side = LOCK_USER;
	lock->class = futex->call.operation;
	lock->confidence = futex->call.flags & (FUTEX_IS_SHARED | FUTEX_IS_REALTIME | FUTEX_IS_COMPAT);
}

static __always_inline __u64 intern_address(struct stack_scratch *scratch, struct task_struct *task, struct lock_id *lock)
{
	struct stack_record *stack = &scratch->record;

	stack->addresses[0] = lock->address;
	stack->depth = 1;
	stack->kind = STACK_ADDRESS;
	stack->end = 0;
	stack->tgid = lock->tgid;
	return intern_stack(stack, (__u64)BPF_CORE_READ(task, mm), true);
}

/* Once per lock, and again when a wait finds what none before it found: a holder. */
static __always_inline void describe_lock(struct futex_wait *futex, struct task_struct *task, struct stack_scratch *scratch)
{
	struct futex_lock *known = bpf_map_lookup_elem(&futex_locks, &futex->wait.lock), first = {};

	if (known) {
		if (futex->evidence.place && !known->evidence.place)
			known->evidence = futex->evidence;
		if (!known->user_stack)
			known->user_stack = futex->wait.user_stack;
		return;
	}
	first.evidence = futex->evidence;
	first.user_stack = futex->wait.user_stack;
	first.address_id = intern_address(scratch, task, &futex->wait.lock);
	if (bpf_map_update_elem(&futex_locks, &futex->wait.lock, &first, BPF_NOEXIST))
		__sync_fetch_and_add(&futex_losses.undescribed, 1);
}

static __always_inline void begin_futex_wait(struct futex_wait *futex, __u64 now)
{
	__builtin_memset(&futex->wait, 0, sizeof(futex->wait));
	futex->wait.begin_ns = futex->wait.part_ns = now;
	futex->phase = FUTEX_BLOCKED;
	futex->requeued_ns = 0;
	futex->restarts = 0;
}

/* Decodes the call that the thread sleeps in; a restarted one has kept its arguments. */
static __always_inline bool waits_on_futex(struct futex_wait *futex, struct task_struct *task, bool is_current)
{
	const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	__u64 restart = futex->call.flags & FUTEX_IS_COMPAT ? SYSCALL_IA32_RESTART : SYSCALL_RESTART;

	if (futex->restarts && syscall_number_here(regs) == restart)
		return true;
	futex_call_of(task, is_current, &futex->call);
	return is_futex_wait(&futex->call);
}

/* Returns of 32-bit calls go unseen until user space has attached the program for them: whether this is another call, nobody
 * knows.
 */
static __always_inline void drop_unreturned(struct futex_wait *futex)
{
	if (futex->phase == FUTEX_IDLE || !(futex->call.flags & FUTEX_IS_COMPAT) || futex_compat_returns)
		return;
	futex->phase = FUTEX_IDLE;
	__sync_fetch_and_add(&futex_losses.unseen, 1);
}

/* The thread leaves its CPU. */
static __always_inline void futex_switched_out(struct futex_wait *futex, struct task_struct *task, bool preempt, __u32 state)
{
	bool runnable = stays_runnable(preempt, state);
	__u64 now;

	if (!runnable)
		futex->switches_seen = task->nvcsw;
	drop_unreturned(futex);
	if (futex->phase == FUTEX_IDLE && (runnable || !(state & TASK_INTERRUPTIBLE) || task->flags & PF_KTHREAD ||
					   !waits_on_futex(futex, task, true)))
		return;
	now = bpf_ktime_get_ns();
	if (window_end_ns && now >= window_end_ns)
		return;
	if (futex->phase != FUTEX_IDLE) {
		futex->phase = runnable ? FUTEX_RUNNABLE : FUTEX_BLOCKED;
		futex->runnable_ns = now;
		return;
	}
	begin_futex_wait(futex, now);
	if (futex->call.flags & FUTEX_IS_COMPAT && !futex_compat_returns)
		__sync_fetch_and_add(&futex_compat_tasks, 1);
	find_holder(&futex->call, task, &futex->evidence, &futex->wait.holder);
}

/* Time on the run queue, as far as it belongs to the interval under way. */
static __always_inline void end_run_queue(struct futex_wait *futex, __u64 now)
{
	__u64 from = futex->runnable_ns;

	if (from < window_start_ns)
		from = window_start_ns;
	if (from < futex->wait.reported_ns)
		from = futex->wait.reported_ns;
	if (window_start_ns && now > from)
		futex->wait.run_queue_ns += now - from;
	futex->runnable_ns = now;
}

static __always_inline void futex_switched_in(struct futex_wait *futex)
{
	__u64 now;

	if (futex->phase == FUTEX_IDLE)
		return;
	now = bpf_ktime_get_ns();
	if (window_end_ns && now >= window_end_ns)
		return;
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, now);
	futex->phase = FUTEX_RUNNING;
}

/* Whether the task that is current is releasing what `futex` waits for, and not just hit by the interrupt that ends it. */
static __always_inline bool is_release(struct futex_wait *futex, struct futex_call *by)
{
	if (!is_futex_wake(by))
		return false;
	if (by->operation == FUTEX_BY_EXIT || by->address == futex->call.address || by->address2 == futex->call.address)
		return true;
	/* Which of several it will be is known when the call returns. */
	if (futex->call.operation == FUTEX2_WAITV)
		return true;
	/* A shared futex may be mapped elsewhere in the waker. */
	return futex->call.flags & by->flags & FUTEX_IS_SHARED || was_requeued(futex, by);
}

/* Runs in the waker's context. */
static __always_inline void futex_woken(void *ctx, struct futex_wait *futex, const volatile struct stack_config *stacks)
{
	__u64 now = bpf_ktime_get_ns();
	struct stack_scratch *scratch;
	struct futex_call by;
	__u32 slot;

	if (futex->phase == FUTEX_IDLE || (window_end_ns && now >= window_end_ns))
		return;
	if (futex->phase == FUTEX_BLOCKED) {
		futex->phase = FUTEX_RUNNABLE;
		futex->runnable_ns = now;
	}
	futex_call_of(current_task(), true, &by);
	if (!is_release(futex, &by))
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.unwalked, 1);
		return;
	}
	futex->wait.waker = waker_record(ctx, slot, scratch, stacks);
	if (!futex->wait.holder.kind) {
		describe_holder(current_task(), &futex->wait.holder);
		futex->wait.holder.kind = HOLDER_WAKER;
	}
	release_scratch(scratch);
}

/* With a scratch claimed for it. */
static __always_inline void describe_here(struct futex_wait *futex, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.undescribed, 1);
		return;
	}
	describe_lock(futex, task, scratch);
	release_scratch(scratch);
}

/* A call that returned without sleeping. */
static __always_inline void futex_raced(struct futex_wait *futex, const struct futex_call *call, struct task_struct *task,
					long ret)
{
	__u64 now = bpf_ktime_get_ns();

	if (!in_window(now))
		return;
	futex->call = *call;
	if (ret >= 0 && task->nvcsw != futex->switches_seen) {
		__sync_fetch_and_add(&futex_losses.unseen, 1);
		return;
	}
	if (ret != -EAGAIN && ret != -ETIMEDOUT && (ret || futex->call.operation == FUTEX_LOCK_PI))
		return;
	begin_futex_wait(futex, now);
	futex->phase = FUTEX_IDLE;
	identify_futex(futex, task);
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	futex->evidence.value = futex->call.value;
	describe_here(futex, task);
	futex->wait.is_raced = futex->wait.is_counted = 1;
	add_to_lock(&futex->wait, epoch & 1, 0, 0, false);
}

static __always_inline void walk_futex_waiter(struct futex_wait *futex, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.unwalked, 1);
		identify_futex(futex, task);
		return;
	}
	futex->wait.user_stack = user_stack(slot, scratch, task, tgid_of(targets.pid_namespace, task));
	identify_futex(futex, task);
	describe_lock(futex, task, scratch);
	release_scratch(scratch);
}

/* Splits the wait in two: before the requeue it was for one futex, after it for another. */
static __always_inline void count_requeued(struct futex_wait *futex, struct task_struct *task, __u64 now)
{
	__u64 waker = futex->wait.waker, run_queue_ns = futex->wait.run_queue_ns, stack = futex->wait.user_stack;
	__u64 from = futex->requeued_ns;
	struct lock_holder holder = futex->wait.holder;

	futex->wait.waker = futex->wait.run_queue_ns = 0;
	futex->wait.holder.kind = HOLDER_UNKNOWN;
	count_wait(&futex->wait, task, epoch, from, false);
	begin_futex_wait(futex, from);
	futex->call.address = futex->requeued_to;
	futex->call.operation = FUTEX_REQUEUED;
	futex->wait.user_stack = stack;
	futex->wait.waker = waker;
	futex->wait.run_queue_ns = run_queue_ns;
	futex->wait.holder = holder;
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	identify_futex(futex, task);
	describe_here(futex, task);
}

/* A futex call of a target returns: closes its wait. */
static __always_inline void futex_returned(struct futex_wait *futex, struct task_struct *task, long ret)
{
	__u64 now = bpf_ktime_get_ns();

	if (window_end_ns && now >= window_end_ns)
		return;
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, now);
	note_woken_entry(task, &futex->call, ret);
	futex->wait.is_given_up = ret < 0;
	if (ret < 0)
		futex->wait.waker = 0;
	if (ret < 0 && futex->wait.holder.kind == HOLDER_WAKER)
		futex->wait.holder.kind = HOLDER_UNKNOWN;
	walk_futex_waiter(futex, task);
	if (futex->requeued_ns > futex->wait.begin_ns && futex->requeued_ns < now)
		count_requeued(futex, task, now);
	count_wait(&futex->wait, task, epoch, now, false);
	__sync_fetch_and_add(&futex_events, 1);
	futex->phase = FUTEX_IDLE;
	futex->restarts = ret == -ERESTART_RESTARTBLOCK;
}

/* A task that is found by the iterator may have been waiting for long. */
static __always_inline void futex_found(struct futex_wait *futex, struct task_struct *task)
{
	futex->switches_seen = BPF_CORE_READ(task, nvcsw);
	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD) && saved_is_compat(user_regs_of(task)))
		__sync_fetch_and_add(&futex_compat_tasks, 1);
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD || is_on_cpu(task) || is_queued(task))
		return;
	if (waits_on_futex(futex, task, false))
		begin_futex_wait(futex, bpf_ktime_get_ns());
}

#endif
