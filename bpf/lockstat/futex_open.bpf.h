/* SPDX-License-Identifier: MIT */
/* futex_open.bpf.h: waits on futexes that are not over at the end of an interval. */
#ifndef __FUTEX_OPEN_BPF_H__
#define __FUTEX_OPEN_BPF_H__

#include "futex_waits.bpf.h"

#define NO_LONGER (~0ULL)

/* A wait that is open at the end of an interval: where its thread is, for user space to walk. */
struct open_futex {
	struct lock_id lock;
	/* User registers. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Return address of a function that has not saved it, on arm64; else 0. */
	__u64 lr;
	/* Address that the thread's own data lies around; 0: it is not known. */
	__u64 thread_pointer;
	/* Stack pointer at which the thread waits for work; 0: nobody knows. */
	__u64 outer_sp;
	/* Times that the thread has got a CPU: while they are the same, it still waits here. 0: the kernel does not count;
	 * NO_LONGER: it does not wait.
	 */
	__u64 slices;
	__u32 tgid;
	__u32 tid;
};

/* The iterator's output has no map that would name its type. */
const struct open_futex *unused_open_futex __attribute__((unused));

static __always_inline __u64 slices_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.pcount) ? BPF_CORE_READ(task, sched_info.pcount) : 0;
}

static __always_inline void hand_over_registers(const struct lock_wait *wait, const struct outer_wait *outer, struct task_struct *task,
						struct seq_file *seq)
{
	const struct pt_regs *regs = user_regs_of(task);
	/* Before the registers: a thread that runs on in between has other ones, and is known by it. */
	__u64 slices = slices_of(task);
	struct open_futex open = {
		.lock = wait->lock,
		.ip = saved_ip(regs),
		.sp = saved_sp(regs),
		.bp = saved_fp(regs),
		.lr = saved_lr(regs),
		.thread_pointer = thread_pointer_of(task),
		.outer_sp = outer_sp(outer, wait->begin_ns, saved_sp(regs)),
		.slices = is_on_cpu(task) ? NO_LONGER : slices,
		.tgid = tgid_of(targets.pid_namespace, task),
		.tid = tid_of(targets.pid_namespace, task),
	};

	bpf_seq_write(seq, &open, sizeof(open));
}

/* The wait goes on, or it is over, as the next call will tell: its last one had returned. */
static __noinline void count_paused_wait(struct futex_wait *futex, struct task_struct *task)
{
	__u64 end_ns = smaller_of(futex->paused_ns, edge_ns);

	if (futex->wait.reported_ns >= end_ns || futex->wait.begin_ns >= end_ns)
		return;
	drop_unsure_holder(futex);
	count_wait(&futex->wait, task, open_epoch, end_ns, true);
	note_reported(&futex->wait, end_ns);
}

/* From the closing iterator. */
static __always_inline void count_open_futex_wait(struct futex_wait *futex, struct task_struct *task, struct seq_file *seq)
{
	if (futex->phase == FUTEX_IDLE || futex->wait.begin_ns >= edge_ns)
		return;
	if (futex->phase == FUTEX_PAUSED) {
		count_paused_wait(futex, task);
		return;
	}
	if (futex->phase == FUTEX_RUNNABLE)
		end_run_queue(futex, edge_ns);
	drop_unsure_holder(futex);
	identify_futex(futex, task);
	describe_here(futex, task);
	count_open_wait(&futex->wait, task);
	hand_over_registers(&futex->wait, &futex->outer, task, seq);
}

#endif
