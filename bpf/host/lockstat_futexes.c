/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_futexes.c: lockstat's programs for programs' locks on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_tracing.h>

static void *host_registers_of(const struct task_struct *task);
static __u64 host_ids_of_current(void);
static long host_read_user(void *to, __u32 bytes, const void *from);

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
/* A thread is found by its number. */
#undef bpf_ksym_exists
#define bpf_ksym_exists(symbol) true
#include "no_stacks.h"
#include "no_names.h"
#undef bpf_probe_read_user
#define bpf_probe_read_user(to, bytes, from) host_read_user(to, bytes, from)
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

#define HOST_PAGE 4096

/* Behind a page is nothing. */
static long host_read_user(void *to, __u32 bytes, const void *from)
{
	if ((__u64)from % HOST_PAGE + bytes > HOST_PAGE)
		return -14;
	__builtin_memcpy(to, from, bytes);
	return 0;
}

#define HOST_THREADS 256

/* Those that live, by their numbers. */
static struct task_struct *host_threads[HOST_THREADS];
static __s64 host_references;

struct task_struct *bpf_task_from_vpid(s32 vpid)
{
	struct task_struct *task = vpid > 0 && vpid < HOST_THREADS ? host_threads[vpid] : NULL;

	host_references += task != NULL;
	return task;
}

struct task_struct *bpf_task_from_pid(s32 pid)
{
	return bpf_task_from_vpid(pid);
}

void bpf_task_release(struct task_struct *task)
{
	host_references--;
}

struct task_struct *host_thread(__u32 tid, __u32 tgid)
{
	struct task_struct *task = host_make_task(sizeof(*task) + sizeof(struct pt_regs) + sizeof(struct call_arguments));

	task->pid = tid;
	task->tgid = tgid;
	task->group_leader = task->real_parent = task;
	task->thread_pid = host_make_task(sizeof(*task->thread_pid) + sizeof(struct upid));
	/* Processes have different memory. */
	task->mm = (void *)(__u64)tgid;
	if (tid)
		host_threads[tid] = task;
	return task;
}

/* It is this deep in PID namespaces. */
void host_level(struct task_struct *task, __u32 level)
{
	task->thread_pid->level = level;
}

/* Another page; all processes have it at the same address. */
void *host_page(void)
{
	static __u8 pages[32][HOST_PAGE] __attribute__((aligned(HOST_PAGE)));
	static __u32 given;

	return pages[given++ % 32];
}

/* The numbers that futex(2), exit(2) and restart_syscall(2) have here. */
enum host_call {
	HOST_FUTEX = 0,
	HOST_NONE = -1,
	HOST_EXIT = -2,
	HOST_RESTART = -3,
};

static __u64 host_number(__s64 number)
{
	switch (number) {
	case HOST_FUTEX:
		return SYSCALL_FUTEX;
	case HOST_EXIT:
		return SYSCALL_EXIT;
	case HOST_RESTART:
		return SYSCALL_RESTART;
	default:
		return number;
	}
}

/* enum host_call, or any other call's number. */
void host_calls(struct task_struct *task, __s64 number, const __u64 arguments[6])
{
	struct pt_regs *registers = host_registers_of(task);

	((__u64 *)registers)[host_number_at] = host_number(number);
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

/* The clock closes the window there. The last interval's rows are in the half that is returned. */
__u32 host_end(__u64 at)
{
	open_epoch = epoch & 1;
	edge_ns = window_end_ns = at;
	return open_epoch;
}

/* The iterator comes by a thread behind an interval's end. */
void host_close(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };

	close_waits(&context);
}

/* An interval that is not the last one ends: its rows are in the half that is returned. */
__u32 host_turn(__u64 at)
{
	open_epoch = epoch & 1;
	edge_ns = at;
	epoch = 1 - open_epoch;
	return open_epoch;
}

/* The destination of a row: its numbers. */
typedef void host_row(void *to, const __u64 *numbers, __u32 count);

struct host_taking {
	__u32 half;
	host_row *row;
	void *to;
};

/* Table and lock: 5 numbers. */
#define HOST_LOCK(table, lock) table, (lock).address, (lock).class, (lock).confidence, (lock).tgid
#define HOST_ROW(taking, ...)                                                                                 \
	(taking)->row((taking)->to, (__u64[]){ __VA_ARGS__ }, sizeof((__u64[]){ __VA_ARGS__ }) / sizeof(__u64))

static bool host_takes_sum(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_key *key = of;
	const struct lock_sum *sum = value;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(0, key->lock), sum->contentions, sum->total_ns, sum->carried_ns, sum->max_ns, sum->spin_ns,
		 sum->block_ns, sum->run_queue_ns, sum->raced, sum->given_up, sum->open);
	return true;
}

static bool host_takes_bucket(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_key *key = of;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(1, key->lock), key->bucket, *(const __u64 *)value);
	return true;
}

static bool host_takes_waiter(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct waiter_key *key = of;
	const struct waiter_value *sum = value;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(2, key->lock), key->tgid, key->tid, sum->count, sum->total_ns, sum->run_queue_ns, sum->max_ns);
	return true;
}

static bool host_takes_holder(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct holder_key *key = of;
	const struct holder_value *sum = value;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(3, key->lock), key->kind, key->tgid, key->tid, sum->waits, sum->caused_ns, sum->states[0],
		 sum->states[1], sum->states[2]);
	return true;
}

/* Takes all rows of a half: its lock, then what the functions above say. */
void host_take(__u32 half, host_row *row, void *to)
{
	struct host_taking taking = { half, row, to };

	host_visit(&locks, host_takes_sum, &taking);
	host_visit(&lock_buckets, host_takes_bucket, &taking);
	host_visit(&waiters, host_takes_waiter, &taking);
	host_visit(&holders, host_takes_holder, &taking);
}

/* Calls that slept unseen; waits that returned; what found no room in each table: locks, their ns, buckets, waiters, their ns,
 * holders, descriptions. Then what must never happen.
 */
void host_told(__u64 told[10])
{
	told[0] = futex_losses.unseen;
	told[1] = futex_events;
	told[2] = lock_losses.locks_full;
	told[3] = lock_losses.locks_full_ns;
	told[4] = lock_losses.buckets_full;
	told[5] = lock_losses.waiters_full;
	told[6] = lock_losses.waiters_full_ns;
	told[7] = lock_losses.holders_full;
	told[8] = futex_losses.undescribed;
	told[9] = lock_losses.negative + futex_losses.unwalked + lock_losses.maxima_raced + host_references;
}
