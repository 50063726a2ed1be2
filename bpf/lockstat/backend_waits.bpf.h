/* SPDX-License-Identifier: MIT */
/* backend_waits.bpf.h: waits of PostgreSQL's processes, by the wait event that they have announced.
 *
 * Row locks are waited for in epoll_wait on a latch, buffers in read: the event says what for, whatever the system call. A wait on a
 * futex stays one (futex_waits.bpf.h), and has the event as its lock; what the kernel itself says of its locks comes first.
 */
#ifndef __BACKEND_WAITS_BPF_H__
#define __BACKEND_WAITS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "backend_state.bpf.h"
#include "futex_open.bpf.h"
#include "futex_waits.bpf.h"
#include "kernel_locks.bpf.h"
#include "lock_counts.bpf.h"
#include "lock_holders.bpf.h"
#include "stacks.bpf.h"
#include "wakers.bpf.h"

/* include/uapi/asm-generic/signal.h: what sets another process's latch, since release 14 with its pointer to the event. */
#define SIGURG 23

struct backend_losses {
	/* Events that could not be read: their page was not there. */
	__u64 unread;
	/* No scratch for the stack. */
	__u64 unwalked;
};

struct backend_losses backend_losses = {};

/* Waits that ended, for the closing line. */
__u64 backend_events = 0;

static __always_inline __u32 server_of(struct task_struct *task)
{
	return tgid_of(targets.pid_namespace, BPF_CORE_READ(task, real_parent));
}

/* The wait event of a process that is current and about to sleep; 0: none, or it is not one of PostgreSQL's. */
static __always_inline __u32 event_of(const struct backend *backend, struct task_struct *task)
{
	__u64 at = 0;
	__u32 event = 0;

	if (!backend->pointer_at || backend->mm != (__u64)BPF_CORE_READ(task, mm))
		return 0;
	if (bpf_probe_read_user(&at, sizeof(at), (void *)backend->pointer_at) ||
	    bpf_probe_read_user(&event, sizeof(event), (void *)at)) {
		__sync_fetch_and_add(&backend_losses.unread, 1);
		return 0;
	}
	return event;
}

static __always_inline void begin_backend_wait(struct backend *backend, __u32 event, __u64 now)
{
	__builtin_memset(&backend->wait, 0, sizeof(backend->wait));
	backend->wait.begin_ns = backend->wait.part_ns = now;
	identify_event(&backend->wait.lock, event, backend->server);
	backend->runnable_ns = 0;
	backend->phase = FUTEX_BLOCKED;
}

static __always_inline void walk_backend(struct lock_wait *wait, struct task_struct *task)
{
	struct stack_scratch *scratch;
	__u32 slot;

	if (leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&backend_losses.unwalked, 1);
		return;
	}
	wait->user_stack = user_stack(slot, scratch, task, tgid_of(targets.pid_namespace, task));
	release_scratch(scratch);
}

/* The process, which is current, leaves its CPU; for a futex, its event is that one's. `is_other`: it sleeps for a futex, or for a lock
 * of the kernel's.
 */
static __always_inline void backend_leaves(struct backend *backend, struct task_struct *task, __u32 event, bool is_other)
{
	__u64 now;

	backend->phase = FUTEX_IDLE;
	if (!event || is_other)
		return;
	now = bpf_ktime_get_ns();
	if (window_end_ns && now >= window_end_ns)
		return;
	begin_backend_wait(backend, event, now);
	if (!is_idle_event(event))
		walk_backend(&backend->wait, task);
}

/* Input and output is done by the kernel, and work comes from elsewhere. */
static __always_inline bool has_releaser(__u32 event)
{
	return !is_idle_event(event) && event >> 24 != EVENT_IO;
}

/* True where the task that is current, of the same server, is in a call that sets a latch, and not just hit by the interrupt that
 * ends the wait.
 */
static __always_inline bool is_latch_set(const struct backend *backend)
{
	struct task_struct *by = current_task();
	const struct pt_regs *regs = user_regs_of(by);
	struct call_arguments from;

	if (saved_syscall_number(regs) != SYSCALL_KILL)
		return false;
	arguments_of(regs, false, &from);
	if ((__u32)from.args[1] != SIGURG)
		return false;
	return tgid_of(targets.pid_namespace, by) == backend->server || server_of(by) == backend->server;
}

/* Runs in the waker's context. */
static __always_inline void backend_woken(void *ctx, struct backend *backend)
{
	struct stack_scratch *scratch;
	__u64 now;
	__u32 slot;

	if (backend->phase != FUTEX_BLOCKED)
		return;
	now = bpf_ktime_get_ns();
	if (window_end_ns && now >= window_end_ns)
		return;
	backend->phase = FUTEX_RUNNABLE;
	backend->runnable_ns = now;
	if (!has_releaser(backend->wait.lock.address) || !is_latch_set(backend))
		return;
	backend->wait.waker_pid = (__u32)bpf_get_current_pid_tgid();
	backend->wait.released_ns = now;
	note_holder(&backend->wait.holder, current_task(), HOLDER_WAKER, false);
	note_meanwhile(&backend->wait, now);
	if ((config.releasers.no_user && config.releasers.no_kernel) || leaves_out_stack())
		return;
	scratch = claim_scratch(&slot);
	if (!scratch) {
		__sync_fetch_and_add(&backend_losses.unwalked, 1);
		return;
	}
	backend->wait.waker = waker_record(ctx, slot, scratch, &config.releasers);
	release_scratch(scratch);
}

static __always_inline void end_backend_queue(struct backend *backend, __u64 now)
{
	/* An interval's edge may lie before the wakeup. */
	if (backend->phase != FUTEX_RUNNABLE || backend->runnable_ns >= now)
		return;
	add_run_queue(&backend->wait, backend->runnable_ns, before_end(now));
	backend->runnable_ns = now;
}

static __always_inline void backend_runs(struct backend *backend, struct task_struct *task)
{
	__u64 now;

	if (backend->phase == FUTEX_IDLE)
		return;
	now = bpf_ktime_get_ns();
	end_backend_queue(backend, now);
	/* From here on an edge is looked after here, and the iterator leaves it alone. */
	backend->phase = FUTEX_IDLE;
	count_ended_wait(&backend->wait, task, now);
	if (!is_idle_event(backend->wait.lock.address))
		__sync_fetch_and_add(&backend_events, 1);
}

/* From the closing iterator. A wait that was under way when tracing began has no stack yet. */
static __always_inline void count_open_backend_wait(struct member *member, struct task_struct *task, struct seq_file *seq)
{
	struct backend *backend = &member->backend;

	if (backend->phase == FUTEX_IDLE || backend->wait.begin_ns >= edge_ns)
		return;
	end_backend_queue(backend, edge_ns);
	count_open_wait(&backend->wait, task);
	if (!backend->wait.user_stack && !is_idle_event(backend->wait.lock.address))
		hand_over_registers(&backend->wait, &member->futex.outer, task, seq);
}

/* The event that user space has read, of a process that has slept since then; 0: none, or it is another one by now. */
static __always_inline __u32 event_since(const struct server_process *known, struct task_struct *task)
{
	/* The order matters: it may fall asleep meanwhile. */
	if (is_on_cpu(task) || is_queued(task))
		return 0;
	return BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw) == known->switches ? known->event : 0;
}

/* A task becomes a target: the event that it was asleep for before; 0: none. Only main threads announce events. */
static __always_inline __u32 backend_found(struct backend *backend, struct task_struct *task)
{
	__u32 tgid = tgid_of(targets.pid_namespace, task), parent = server_of(task);
	struct server_process *known = bpf_map_lookup_elem(&server_processes, &tgid);
	__u32 event = 0;

	if (BPF_CORE_READ(task, pid) != BPF_CORE_READ(task, tgid))
		return 0;
	if (known)
		event = event_since(known, task);
	else
		known = bpf_map_lookup_elem(&server_processes, &parent);
	/* Children of other processes than the server are none of its. */
	if (!known || (known->server != tgid && known->server != parent))
		return 0;
	backend->pointer_at = known->pointer_at;
	backend->server = known->server;
	backend->mm = (__u64)BPF_CORE_READ(task, mm);
	return event;
}

/* Another process may get its number. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(server_process_exited, struct task_struct *task)
{
	__u32 tgid;

	if (!config.futexes || !is_leader(task))
		return 0;
	tgid = tgid_of(targets.pid_namespace, task);
	bpf_map_delete_elem(&server_processes, &tgid);
	return 0;
}

#endif
