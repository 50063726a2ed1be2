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
#include "compat.bpf.h"
#include "futex_call.bpf.h"
#include "sleep_state.bpf.h"

/* include/uapi/asm-generic/signal.h: what sets another process's latch, since release 14 with its pointer to the event. */
#define SIGURG 23

struct backend_losses {
	/* Events that could not be read: their page was not there. */
	__u64 unread;
};

struct backend_losses backend_losses = {};

static __always_inline __u32 server_of(struct task_struct *task)
{
	return tgid_of(targets.pid_namespace, BPF_CORE_READ(task, real_parent));
}

/* The wait event of a process that is current and about to sleep; 0: none, or it is not one of PostgreSQL's. */
static __always_inline __u32 event_of(struct backend *backend, struct task_struct *task)
{
	__u64 at = 0;

	backend->event = 0;
	if (backend->pointer_at && backend->mm == (__u64)BPF_CORE_READ(task, mm) &&
	    (bpf_probe_read_user(&at, sizeof(at), (void *)backend->pointer_at) ||
	     bpf_probe_read_user(&backend->event, sizeof(backend->event), (void *)at)))
		__sync_fetch_and_add(&backend_losses.unread, 1);
	/* Read anew: the verifier would else go through what follows once for each way that led here. */
	return *(volatile __u32 *)&backend->event;
}

static __always_inline void begin_event_wait(struct sleep *sleep, const struct backend *backend, __u32 event, __u64 now)
{
	begin_sleep(sleep, now);
	identify_event(&sleep->wait.lock, event, backend->server);
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
