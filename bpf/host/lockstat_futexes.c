/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_futexes.c: lockstat's programs for programs' locks on this machine, and what a test asks of them. Nobody vouches for a
 * number in memory: holders are known by their waking only.
 */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_tracing.h>

static void *host_registers_of(const struct task_struct *task);
static __u64 host_ids_of_current(void);

/* Registers that hold arguments differ between architectures: here they lie behind all others. */
#undef PT_REGS_PARM1_SYSCALL
#undef PT_REGS_PARM2_SYSCALL
#undef PT_REGS_PARM3_SYSCALL
#undef PT_REGS_PARM4_SYSCALL
#undef PT_REGS_PARM5_SYSCALL
#undef PT_REGS_PARM6_SYSCALL
#define HOST_PARAMETER(regs, at) (((const __u64 *)((regs) + 1))[at])
#define PT_REGS_PARM1_SYSCALL(regs) HOST_PARAMETER(regs, 0)
#define PT_REGS_PARM2_SYSCALL(regs) HOST_PARAMETER(regs, 1)
#define PT_REGS_PARM3_SYSCALL(regs) HOST_PARAMETER(regs, 2)
#define PT_REGS_PARM4_SYSCALL(regs) HOST_PARAMETER(regs, 3)
#define PT_REGS_PARM5_SYSCALL(regs) HOST_PARAMETER(regs, 4)
#define PT_REGS_PARM6_SYSCALL(regs) HOST_PARAMETER(regs, 5)

#undef bpf_task_pt_regs
#define bpf_task_pt_regs(task) host_registers_of(task)
#define bpf_get_current_pid_tgid() host_ids_of_current()
#define bpf_tail_call(ctx, map, index) ((void)(ctx))
#include "no_stacks.h"
#include "no_names.h"
#include "../lockstat/lockstat.bpf.c"
#include "scheduler.h"

/* They lie behind the task. */
static void *host_registers_of(const struct task_struct *task)
{
	return (void *)(task + 1);
}

static __u64 host_ids_of_current(void)
{
	const struct task_struct *task = host_current();

	return (__u64)task->tgid << 32 | task->pid;
}

/* The register that holds a system call's number. */
static __u32 host_number_at;

static void host_learn_registers(void)
{
	struct pt_regs numbered;

	for (__u32 at = 0; at < sizeof(numbered) / sizeof(__u64); at++)
		((__u64 *)&numbered)[at] = at + 1;
	host_number_at = (__u32)syscall_number_here(&numbered) - 1;
}

void host_begin(__u64 now)
{
	struct lockstat_config all = { .futexes = 1 };

	host_learn_registers();
	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

struct task_struct *host_thread(__u32 tid, __u32 tgid)
{
	struct task_struct *task = host_make_task(sizeof(*task) + sizeof(struct pt_regs) + sizeof(struct call_arguments));

	task->pid = tid;
	task->tgid = tgid;
	task->group_leader = task->real_parent = task;
	/* Processes have different memory. */
	task->mm = (void *)(__u64)tgid;
	return task;
}

/* Words of a lock; all processes have them at the same address. */
void *host_lock(void)
{
	return host_make_task(4096);
}

/* 0: futex(2); -1: none. */
void host_calls(struct task_struct *task, __s64 number, const __u64 arguments[6])
{
	struct pt_regs *registers = host_registers_of(task);

	((__u64 *)registers)[host_number_at] = number ? (__u64)number : SYSCALL_FUTEX;
	__builtin_memcpy(registers + 1, arguments, sizeof(struct call_arguments));
}

/* The entry of futex(2) has a program, and of no other call. */
void host_enters(const __u64 arguments[6])
{
	struct syscall_entry context = { .number = SYSCALL_FUTEX };

	__builtin_memcpy(context.args, arguments, sizeof(context.args));
	futex_entry(&context);
}

void host_returns(__s64 ret)
{
	struct syscall_return context = { .ret = ret };

	futex_exit(&context);
}

void host_state(struct task_struct *task, bool queued, bool runs)
{
	task->on_rq = queued || runs;
	task->on_cpu = runs;
}

void host_waking(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_waking(context);
}

/* The clock closes the window there. */
void host_end(__u64 at)
{
	window_end_ns = at;
}

/* The iterator comes by a thread behind the window's end. */
void host_close(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };

	edge_ns = window_end_ns;
	close_waits(&context);
}

static struct lock_id host_id(const void *lock, __u8 operation, bool is_shared, __u32 tgid)
{
	return (struct lock_id){
		.address = (__u64)lock,
		.tgid = tgid,
		.side = LOCK_USER,
		.class = operation,
		.confidence = is_shared ? FUTEX_IS_SHARED : 0,
	};
}

/* Waits, ns of them, the longest, ns spinning, blocked and on run queues, and how many were raced, given up and open. */
void host_sums(const void *lock, __u8 operation, bool is_shared, __u32 tgid, __u64 sums[9])
{
	struct lock_key key = { .lock = host_id(lock, operation, is_shared, tgid) };
	struct lock_sum none = {}, *sum = bpf_map_lookup_elem(&locks, &key);

	sum = sum ?: &none;
	sums[0] = sum->contentions;
	sums[1] = sum->total_ns;
	sums[2] = sum->max_ns;
	sums[3] = sum->spin_ns;
	sums[4] = sum->block_ns;
	sums[5] = sum->run_queue_ns;
	sums[6] = sum->raced;
	sums[7] = sum->given_up;
	sums[8] = sum->open;
}

/* Waits in the bucket of a length. */
__u64 host_bucket(const void *lock, __u8 operation, bool is_shared, __u32 tgid, __u64 length_ns)
{
	struct lock_key key = { .lock = host_id(lock, operation, is_shared, tgid), .bucket = hist_bucket(length_ns) };
	__u64 *count = bpf_map_lookup_elem(&lock_buckets, &key);

	return count ? *count : 0;
}

/* Waits of a thread, ns of them, of these on run queues, the longest. */
void host_waiter(const void *lock, __u8 operation, bool is_shared, __u32 tgid, __u32 tid, __u64 sums[4])
{
	struct waiter_key key = {
		.lock = host_id(lock, operation, is_shared, tgid),
		.tgid = tgid,
		.tid = tid,
	};
	struct waiter_value none = {}, *value = bpf_map_lookup_elem(&waiters, &key);

	value = value ?: &none;
	sums[0] = value->count;
	sums[1] = value->total_ns;
	sums[2] = value->run_queue_ns;
	sums[3] = value->max_ns;
}

/* Waits that a thread has ended, and ns of them. */
void host_holder(const void *lock, __u8 operation, bool is_shared, __u32 tgid, __u32 holder_tid, __u32 holder_tgid,
		 __u64 sums[2])
{
	struct holder_key key = {
		.lock = host_id(lock, operation, is_shared, tgid),
		.tid = holder_tid,
		.tgid = holder_tgid,
		.kind = HOLDER_WAKER,
	};
	struct holder_value none = {}, *value = bpf_map_lookup_elem(&holders, &key);

	value = value ?: &none;
	sums[0] = value->waits;
	sums[1] = value->caused_ns;
}

/* Calls that slept unseen; waits that returned. */
void host_told(__u64 told[2])
{
	told[0] = futex_losses.unseen;
	told[1] = futex_events;
}
