/* SPDX-License-Identifier: MIT */
/* futex_waits.bpf.h: waits on futexes, from the moment a thread leaves its CPU inside a futex call to the call's return.
 *
 * A call that does not sleep is no wait: the word had changed meanwhile (raced). But for priority inheritance: such a waiter
 * spins as long as the owner has a CPU (rtmutex_spin_on_owner of 992caf7f1724, 5.15), so that its wait begins with the call.
 *
 * The scheduler's events tell when a thread slept, when and by whom it was woken and when it ran again; the call's return
 * tells how it ended, and there, in the waiter's own context and with the length known, the stack is walked.
 */
#ifndef __FUTEX_WAITS_BPF_H__
#define __FUTEX_WAITS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "futex_holder.bpf.h"
#include "futex_identity.bpf.h"
#include "futex_requeue.bpf.h"
#include "futex_stacks.bpf.h"
#include "futex_state.bpf.h"
#include "futex_wakeups.bpf.h"
#include "gil.bpf.h"
#include "java.bpf.h"
#include "lock_counts.bpf.h"
#include "members.bpf.h"
#include "stacks.bpf.h"
#include "waits.bpf.h"

#define EAGAIN 11
#define ETIMEDOUT 110
/* include/linux/errno.h, before the signal's delivery turns it into EINTR or another try. */
#define ERESTARTSYS 512

/* Grows when a target is a 32-bit program: its calls need other hooks. */
__u64 futex_compat_tasks = 0;
/* User space has attached those. */
__u32 futex_compat_calls = 0;

/* Decodes the call that the thread sleeps in; a restarted one has kept its arguments. */
static __noinline bool waits_on_futex(struct futex_wait *futex, struct task_struct *task, bool is_current)
{
	const struct pt_regs *regs = user_regs_of(task);
	__u64 restart = futex->call.flags & FUTEX_IS_COMPAT ? SYSCALL_COMPAT_RESTART : SYSCALL_RESTART;

	if (futex->restarts && saved_syscall_number(regs) == restart)
		return true;
	futex_call_of(task, is_current, &futex->call);
	if (is_lock_call(saved_syscall_number(regs)))
		return call_lock_of(&futex->call, task);
	return is_futex_wait(&futex->call);
}

/* Returns of 32-bit calls go unseen until user space has attached the program for them: whether this is another call, nobody
 * knows.
 */
static __always_inline void drop_unreturned(struct futex_wait *futex)
{
	if (futex->phase == FUTEX_IDLE)
		return;
	if (!(futex->call.flags & FUTEX_IS_COMPAT) || futex_compat_calls)
		return;
	futex->phase = FUTEX_IDLE;
	if (window_start_ns)
		__sync_fetch_and_add(&futex_losses.unseen, 1);
}

/* A target's futex call begins. */
static __always_inline void futex_entered(struct futex_wait *futex, struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();
	struct futex_call call;

	if (has_ended(now))
		return;
	if (futex->phase == FUTEX_PAUSED)
		end_paused(futex, task);
	/* The last one's return was missed. */
	if (futex->phase != FUTEX_IDLE) {
		__sync_fetch_and_add(&futex_losses.unseen, 1);
		futex->phase = FUTEX_IDLE;
	}
	/* Only what begins a wait changes what the last one was of: restart_syscall(2) may take that up. */
	futex_call_of(task, true, &call);
	if (!is_pi_wait(&call))
		return;
	futex->call = call;
	futex->event = 0;
	begin_futex_wait(futex, now);
	futex->phase = FUTEX_RUNNING;
	futex->wait.is_spinning = 1;
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	/* Else, in a classic tracepoint's program, it is not for us to ask who that is: see futex_holder.bpf.h. */
	if (bpf_ksym_exists(bpf_task_from_vpid))
		find_holder(&futex->call, task, &futex->evidence, &futex->wait.holder);
}

/* In a program that may ask for the holder. */
static __always_inline void end_spinning(struct futex_wait *futex, struct task_struct *task, __u64 now)
{
	if (!futex->wait.is_spinning)
		return;
	end_part(&futex->wait, now);
	futex->wait.is_spinning = 0;
	if (!bpf_ksym_exists(bpf_task_from_vpid))
		find_holder(&futex->call, task, &futex->evidence, &futex->wait.holder);
}

/* The thread leaves its CPU; `event`: what a PostgreSQL process sleeps for. */
static __always_inline void futex_switched_out(struct futex_wait *futex, struct task_struct *task, bool runnable, __u32 state,
					       __u32 event)
{
	bool is_wait = false;
	__u64 now;

	if (!runnable)
		futex->switches_seen = task->nvcsw;
	drop_unreturned(futex);
	if (!is_in_wait(futex)) {
		if (runnable)
			return;
		is_wait = state & TASK_INTERRUPTIBLE && !(task->flags & PF_KTHREAD) && waits_on_futex(futex, task, true);
		if (futex->phase == FUTEX_IDLE && !is_wait)
			return;
	}
	now = bpf_ktime_get_ns();
	if (has_ended(now))
		return;
	if (futex->phase == FUTEX_PAUSED && (goes_on(futex, task, is_wait) || !is_wait))
		return;
	if (futex->phase != FUTEX_IDLE) {
		if (!runnable)
			end_spinning(futex, task, now);
		futex->phase = runnable ? FUTEX_RUNNABLE : FUTEX_BLOCKED;
		futex->runnable_ns = now;
		return;
	}
	futex->event = event;
	begin_futex_wait(futex, now);
	note_gil(futex, task);
	if (!futex->event && !futex->gil)
		note_java(futex, task);
	if (futex->call.flags & FUTEX_IS_COMPAT && !futex_compat_calls)
		__sync_fetch_and_add(&futex_compat_tasks, 1);
	if (futex->event)
		/* No lock of glibc's: what its words mean is the server's business. */
		__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	else if (is_call_lock(&futex->call))
		find_call_holder(futex, task);
	else if (futex->gil)
		find_gil_holder(futex, task);
	else if (futex->java > JAVA_SLEEP)
		find_java_holder(futex, task);
	else
		find_holder(&futex->call, task, &futex->evidence, &futex->wait.holder);
}

static __always_inline void end_run_queue(struct futex_wait *futex, __u64 now)
{
	/* An interval's edge may lie before the wakeup. */
	if (futex->runnable_ns >= now)
		return;
	add_run_queue(&futex->wait, futex->runnable_ns, now);
	futex->runnable_ns = now;
}

static __always_inline void futex_switched_in(struct futex_wait *futex, struct task_struct *task)
{
	__u64 now;

	outer_wait_ends(&futex->outer);
	if (!is_in_wait(futex))
		return;
	now = bpf_ktime_get_ns();
	if (has_ended(now))
		return;
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, now);
	futex->phase = FUTEX_RUNNING;
}

/* With a scratch claimed, if it takes one. */
static __noinline void describe_here(struct futex_wait *futex, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	if (describe_named(futex, task))
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&futex_losses.undescribed, 1);
		return;
	}
	describe_lock(futex, task, slot, scratch);
	release_scratch(scratch);
}

/* A call that returned without sleeping, as far as was seen. */
static __noinline void futex_raced(struct futex_wait *futex, const struct futex_call *call, struct task_struct *task,
					long ret, __u32 event)
{
	__u64 now = bpf_ktime_get_ns(), switches = BPF_CORE_READ(task, nvcsw);
	bool slept = switches != futex->switches_seen;

	/* Once for each: the next call may not sleep at all. */
	futex->switches_seen = switches;
	futex->call = *call;
	futex->restarts = ret == -ERESTART_RESTARTBLOCK;
	if (!in_window(now))
		return;
	if (slept) {
		__sync_fetch_and_add(&futex_losses.unseen, 1);
		return;
	}
	/* futex_waitv returns which one was woken. */
	if (ret != -EAGAIN && ret != -ETIMEDOUT && (ret < 0 || is_pi_wait(&futex->call)))
		return;
	note_woken_entry(task, &futex->call, ret);
	futex->event = event;
	begin_futex_wait(futex, now);
	futex->phase = FUTEX_IDLE;
	identify_futex(futex, task);
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	futex->evidence.value = futex->call.value;
	describe_here(futex, task);
	futex->wait.is_raced = futex->wait.is_counted = 1;
	add_to_lock(&futex->wait, epoch & 1, 0, 0, false);
}

/* Splits the wait in two: before the requeue it was for one futex, after it for another. */
static __noinline void count_requeued(struct futex_wait *futex, struct task_struct *task, __u64 now)
{
	__u64 waker = futex->wait.waker, stack = futex->wait.user_stack;
	__u32 inside = futex->wait.inside;
	/* Time on run queues since the requeue. */
	__u64 run_queue_ns = larger_of(futex->wait.run_queue_ns, futex->queued_before_ns) - futex->queued_before_ns;
	__u64 from = larger_of(futex->requeued_ns, futex->wait.reported_ns);
	struct lock_holder holder = futex->wait.holder;
	__u8 is_given_up = futex->wait.is_given_up;

	if (futex->wait.reported_ns < futex->requeued_ns) {
		futex->wait.waker = 0;
		futex->wait.run_queue_ns -= run_queue_ns;
		futex->wait.is_given_up = 0;
		futex->wait.holder.kind = HOLDER_UNKNOWN;
		count_ended_wait(&futex->wait, task, from);
	} else {
		/* Up to an interval's end it has been reported as a wait for the first, and so has that. */
		run_queue_ns = futex->wait.run_queue_ns;
	}
	begin_futex_wait(futex, from);
	futex->phase = FUTEX_IDLE;
	futex->call.address = futex->requeued_to;
	futex->call.operation = FUTEX_REQUEUED;
	futex->wait.user_stack = stack;
	futex->wait.inside = inside;
	futex->wait.waker = waker;
	futex->wait.run_queue_ns = run_queue_ns;
	futex->wait.is_given_up = is_given_up;
	futex->wait.holder = holder;
	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	identify_futex(futex, task);
	describe_here(futex, task);
}

/* It outlasted the run: the thread may have ended before the iterator comes by. */
static __always_inline void futex_outlasted(struct futex_wait *futex, struct task_struct *task)
{
	if (!edge_ns || futex->wait.begin_ns >= edge_ns || futex->wait.reported_ns >= edge_ns)
		return;
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, edge_ns);
	futex->phase = FUTEX_IDLE;
	drop_unsure_holder(futex);
	walk_futex_waiter(futex, task);
	count_open_wait(&futex->wait, task);
}

/* A futex call of a target returns: closes its wait. */
static __always_inline void futex_returned(struct futex_wait *futex, struct task_struct *task, long ret)
{
	__u64 now = bpf_ktime_get_ns();

	if (has_ended(now)) {
		futex_outlasted(futex, task);
		return;
	}
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, now);
	/* From here on an edge is looked after here, and the iterator leaves it alone. */
	futex->phase = FUTEX_IDLE;
	if (futex->gil && gil_is_taken(futex)) {
		pause_gil_wait(futex, task, ret, now);
		return;
	}
	note_woken_entry(task, &futex->call, ret);
	/* Python's global lock is free, and the thread takes it. */
	futex->wait.is_given_up = ret < 0 && !futex->gil;
	if (ret < 0) {
		futex->wait.waker = 0;
		forget_waker(&futex->wait.holder);
	}
	drop_unsure_holder(futex);
	walk_futex_waiter(futex, task);
	if (futex->requeued_ns > futex->wait.begin_ns && futex->requeued_ns < now)
		count_requeued(futex, task, now);
	count_ended_wait(&futex->wait, task, now);
	__sync_fetch_and_add(&futex_events, 1);
	futex->restarts = ret == -ERESTART_RESTARTBLOCK;
}

/* A task that is found by the iterator may have been waiting for long. */
static __always_inline void futex_found(struct futex_wait *futex, struct task_struct *task, __u32 event)
{
	__u64 preempted = BPF_CORE_READ(task, nivcsw);

	futex->switches_seen = BPF_CORE_READ(task, nvcsw);
	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD) && saved_is_compat(user_regs_of(task)))
		__sync_fetch_and_add(&futex_compat_tasks, 1);
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD || is_on_cpu(task) || is_queued(task))
		return;
	if (!waits_on_futex(futex, task, false))
		return;
	futex->event = event;
	begin_futex_wait(futex, bpf_ktime_get_ns());
	note_gil(futex, task);
	/* The word itself is the waiter's to read, and so are ranges of files. */
	if (!event && futex->call.operation == CALL_FLOCK)
		find_call_holder(futex, task);
	else if (!event && !futex->gil)
		java_found(futex, task);
	futex->evidence.value = futex->call.value;
	/* It ran meanwhile: this may be over, and its own programs may have been at work. */
	if (is_on_cpu(task) || BPF_CORE_READ(task, nvcsw) != futex->switches_seen || BPF_CORE_READ(task, nivcsw) != preempted)
		futex->phase = FUTEX_IDLE;
}

#endif
