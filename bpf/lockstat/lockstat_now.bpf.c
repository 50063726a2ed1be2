// SPDX-License-Identifier: MIT
/* lockstat_now.bpf.c: what every thread is doing at this instant, for `lockstat --now`.
 *
 * Nothing is traced: user space runs the iterator three times. A thread that all looks find asleep, with the same count of
 * switches, was asleep all the time between them, and waited for the same. Stacks come with the looks behind the first, for the
 * threads that user space asks about.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "kernel_owner.bpf.h"
#include "maps.bpf.h"
#include "targets.bpf.h"
#include "unwind.bpf.h"
#include "waits.bpf.h"

#define MAX_WITH_STACK 65536
#define MAX_FRAMES 127
#define SYSCALL_ARGUMENTS 6

enum now_phase {
	NOW_RUNNING = 0,
	NOW_RUNNABLE,
	NOW_ASLEEP,
};

/* One thread. The user's registers mean nothing while it runs. */
struct now_thread {
	/* Addresses are kept to compare, never shown. */
	__u64 task;
	__u64 mm;
	__u64 start_ns;
	__u64 switches;
	struct kernel_lock lock;
	__u64 arguments[SYSCALL_ARGUMENTS];
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Return address of a function that has not saved it, on arm64; else 0. */
	__u64 lr;
	/* Address that the thread's own data lies around; 0: it is not known. */
	__u64 thread_pointer;
	__u32 tgid;
	__u32 tid;
	/* As the thread itself knows its ID, and its PID namespace. */
	__u32 own_tid;
	__u32 pid_namespace;
	struct wait_call call;
	__u8 comm[16];
	__u8 phase;
	__u8 wait_flags;
	__u8 wanted;
	__u8 exact;
	__u8 compat;
	/* It will not run in user mode again. */
	__u8 exiting;
	__u8 pad[2];
	/* Number of kernel addresses that follow, leaf first. */
	__u32 depth;
	__u32 pad2;
};

struct now_record {
	struct now_thread thread;
	__u64 addresses[MAX_FRAMES];
};

PER_CPU(now_scratch, struct now_record);

/* Threads, by their ID in the tool's namespace, whose kernel stacks are wanted. */
MAP(HASH, with_stack, __u32, __u8, MAX_WITH_STACK);

static __always_inline enum now_phase phase_of(struct task_struct *task)
{
	if (is_on_cpu(task))
		return NOW_RUNNING;
	return is_queued(task) || !task_state(task) ? NOW_RUNNABLE : NOW_ASLEEP;
}

static __always_inline void name_thread(struct now_thread *thread, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	struct upid upid = {};

	thread->tgid = tgid_of(targets.pid_namespace, task);
	thread->tid = tid_of(targets.pid_namespace, task);
	bpf_core_read(&upid, sizeof(upid), &pid->numbers[level]);
	thread->own_tid = upid.nr;
	thread->pid_namespace = BPF_CORE_READ(upid.ns, ns.inum);
	bpf_core_read(&thread->comm, sizeof(thread->comm), &task->comm);
}

static __always_inline void describe_call(struct now_thread *thread, struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	struct call_arguments from;

	thread->call = wait_call_of(task, 0);
	thread->ip = saved_ip(regs);
	thread->sp = saved_sp(regs);
	thread->bp = saved_fp(regs);
	thread->lr = saved_lr(regs);
	thread->thread_pointer = thread_pointer_of(task);
	thread->compat = saved_is_compat(regs);
	thread->exact = saved_goes_on_anywhere(regs);
	arguments_of(regs, thread->compat, &from);
	__builtin_memcpy(thread->arguments, from.args, sizeof(thread->arguments));
}

static __always_inline long kernel_addresses(struct now_record *record, struct task_struct *task)
{
	__u32 tid = record->thread.tid;
	long bytes;

	if (record->thread.phase == NOW_RUNNING || !bpf_map_lookup_elem(&with_stack, &tid))
		return 0;
	bytes = bpf_get_task_stack(task, record->addresses, sizeof(record->addresses), 0);
	return bytes > 0 ? bytes : 0;
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct now_record *record;
	struct now_thread *thread;
	__u32 zero = 0;
	__u64 bytes;

	record = bpf_map_lookup_elem(&now_scratch, &zero);
	if (!task || !record)
		return 0;
	thread = &record->thread;
	__builtin_memset(thread, 0, sizeof(*thread));
	/* The state before and the count after: who wakes up in between has another count at the second look. */
	thread->phase = phase_of(task);
	thread->task = (__u64)task;
	thread->mm = (__u64)BPF_CORE_READ(task, mm);
	thread->start_ns = BPF_CORE_READ(task, start_time);
	thread->wanted = is_target(task);
	thread->exiting = BPF_CORE_READ(task, flags) & PF_EXITING ? 1 : 0;
	thread->wait_flags = wait_flags_of(task, thread->phase != NOW_ASLEEP, task_state(task));
	thread->call.syscall = NO_SYSCALL;
	name_thread(thread, task);
	if (thread->mm && !(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		describe_call(thread, task);
	if (thread->phase == NOW_ASLEEP)
		kernel_lock_of(&thread->lock, task, task_state(task));
	bytes = kernel_addresses(record, task);
	thread->switches = BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
	thread->depth = bytes / sizeof(__u64);
	bytes += sizeof(*thread);
	if (bytes <= sizeof(*record))
		bpf_seq_write(ctx->meta->seq, record, bytes);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
