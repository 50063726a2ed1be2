/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_now.c: the look of `lockstat --now` at one thread on this machine, and what a test asks of it. */
#include "kernel_layout.h"
#include "host.h"
#include "futex_registers.h"

/* User stacks are not walked here. */
#define __UNWIND_BPF_H__
#include "compat.bpf.h"
#include "targets.bpf.h"

#define HOST_RECORD_BYTES 2048

static __u8 host_seen[HOST_RECORD_BYTES] __attribute__((aligned(8)));
static __u64 host_seen_bytes;
/* Depth of the kernel stack of whoever is looked at; negative: an error. */
static long host_depth;

static inline long host_sees(const void *record, __u64 bytes)
{
	if (bytes > sizeof(host_seen))
		return -7;
	__builtin_memcpy(host_seen, record, bytes);
	host_seen_bytes = bytes;
	return 0;
}

static inline long host_walks(__u64 *addresses, long most)
{
	if (host_depth < 0)
		return host_depth;
	for (long at = 0; at < host_depth && at < most; at++)
		addresses[at] = 1000 + at;
	return (host_depth < most ? host_depth : most) * sizeof(*addresses);
}

#undef bpf_seq_write
#define bpf_seq_write(seq, record, bytes) host_sees((const void *)(__u64)(record), (__u64)(bytes))
#define bpf_get_task_stack(task, to, bytes, flags) host_walks((__u64 *)(to), (bytes) / sizeof(__u64))
#include "../lockstat/lockstat_now.bpf.c"
#include "futex_numbers.h"

/* The depth of the tool's PID namespace, and the number of system calls whose first argument is a descriptor. */
void host_begin(__u32 level, __u32 futex_syscall, __u32 fd_syscall, enum target_mode mode)
{
	struct target_config wanted = { .mode = mode, .pid_namespace = 7 };
	struct wait_config calls = { .futex_syscall = futex_syscall };

	host_learn_registers();
	pid_namespace_level = level;
	calls.takes_fd[fd_syscall / 64] |= 1ULL << (fd_syscall % 64);
	host_poke(&targets, &wanted, sizeof(wanted));
	host_poke(&waits, &calls, sizeof(calls));
}

/* It has 32-bit programs, and tells where a thread goes on. */
bool host_has_compat(void)
{
#ifdef TS_COMPAT
	return true;
#else
	return false;
#endif
}

void *host_block(void)
{
	return host_make_task(4096);
}

/* A thread's stack is wanted. */
void host_want(__u32 tid)
{
	__u8 wanted = 1;

	bpf_map_update_elem(&with_stack, &tid, &wanted, BPF_ANY);
}

/* All that a thread has, as the test has it. */
struct host_facts {
	/* Numbers in the initial namespace, in the tool's if that is another one, and in its own. */
	__u64 tids[3];
	__u64 tgids[3];
	__u64 level;
	__u64 comm;
	__u64 state;
	__u64 flags;
	__u64 is_on_queue;
	__u64 is_delayed;
	__u64 is_on_cpu;
	__u64 switches;
	__u64 preemptions;
	__u64 start_ns;
	__u64 is_io;
	__u64 is_throttled;
	__u64 has_signal;
	/* The kernel's lock that each field tells of. */
	__u64 blocked_on;
	__u64 blocker;
	__u64 pi_lock;
	/* Its memory; the place in the list of those that wait for mmap_lock, and how long that is; whether it reads. */
	__u64 mm;
	__u64 place;
	__u64 waiters;
	__u64 is_reader;
	/* Its registers. */
	__u64 number;
	__u64 arguments[6];
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 is_compat;
	__u64 is_exact;
	/* Type of what descriptor 1 is of; its kernel stack. */
	__u64 file_type;
	__u64 depth;
};

static struct pid *host_pid(const __u64 numbers[3], __u32 level)
{
	struct pid *pid = host_make_task(sizeof(*pid) + 3 * sizeof(struct upid));

	pid->level = level;
	for (__u32 at = 0; at <= level; at++) {
		pid->numbers[at].nr = numbers[at];
		pid->numbers[at].ns = host_make_task(sizeof(struct pid_namespace));
		/* The tool's has a number below 10. */
		pid->numbers[at].ns->ns.inum = at == 1 ? 7 : 20 + at;
	}
	return pid;
}

/* Waiters in a list with a head in the lock, or in a ring. */
static void host_list(const struct host_facts *facts, struct task_struct *task)
{
	static struct rwsem_waiter___listed waiters[1024];
	bool is_ring = !host_has("sem->wait_list");
	struct rw_semaphore___owned *sem = (void *)facts->mm;
	__u64 count = facts->waiters;

	__builtin_memset(waiters, 0, sizeof(waiters));
	sem->wait_list.next = &sem->wait_list;
	if (is_ring)
		((struct rw_semaphore___ring *)sem)->first_waiter = count ? &waiters[0] : NULL;
	for (__u64 at = 0; at < count; at++) {
		bool is_last = at + 1 == count;

		waiters[at].list.next = !is_last ? &waiters[at + 1].list : is_ring ? &waiters[0].list : &sem->wait_list;
		waiters[at].task = at == facts->place ? task : NULL;
		waiters[at].type = facts->is_reader ? RWSEM_WAITING_FOR_READ : RWSEM_WAITING_FOR_WRITE;
	}
	if (count && !is_ring)
		sem->wait_list.next = &waiters[0].list;
}

static void host_take_registers(const struct host_facts *facts, struct task_struct *task)
{
	struct pt_regs *registers = host_registers_of(task), numbered = host_numbered();

	host_calls(task, facts->number, facts->arguments);
	/* Architecture: x86-64. */
#ifdef TS_COMPAT
	registers->cs = facts->is_compat ? USER32_CS : 0x33;
	/* 32-bit arguments are in registers of their own. */
	registers->bx = facts->arguments[0];
	registers->dx = facts->arguments[2];
	registers->si = facts->arguments[3];
	registers->di = facts->arguments[4];
	registers->cx = facts->is_compat ? facts->arguments[1] : facts->ip + facts->is_exact;
#endif
	((__u64 *)registers)[saved_ip(&numbered) - 1] = facts->ip;
	((__u64 *)registers)[saved_sp(&numbered) - 1] = facts->sp;
	((__u64 *)registers)[saved_fp(&numbered) - 1] = facts->bp;
}

static struct files_struct *host_files(const struct host_facts *facts)
{
	struct files_struct *files = host_make_task(sizeof(*files));
	struct fdtable *table = host_make_task(sizeof(*table));
	struct file *file = host_make_task(sizeof(*file));
	struct inode *inode = host_make_task(sizeof(*inode));

	inode->i_mode = facts->file_type << 12;
	file->f_inode = inode;
	table->max_fds = 2;
	table->fd = host_make_task(2 * sizeof(*table->fd));
	table->fd[1] = file;
	files->fdt = table;
	return files;
}

struct task_struct *host_thread(const struct host_facts *facts)
{
	struct task_struct *task = host_make_task(HOST_TASK_BYTES), *leader = host_make_task(HOST_TASK_BYTES);
	struct rt_mutex_waiter___lock *waiter = host_make_task(sizeof(*waiter));

	task->pid = facts->tids[0];
	task->tgid = facts->tgids[0];
	task->group_leader = leader;
	task->real_parent = leader;
	leader->group_leader = leader->real_parent = leader;
	leader->thread_pid = host_pid(facts->tgids, facts->level);
	task->thread_pid = host_pid(facts->tids, facts->level);
	__builtin_memcpy(task->comm, &facts->comm, sizeof(facts->comm));
	task->__state = facts->state;
	task->flags = facts->flags;
	task->on_rq = facts->is_on_queue;
	task->se.sched_delayed = facts->is_delayed;
	task->on_cpu = facts->is_on_cpu;
	task->nvcsw = facts->switches;
	task->nivcsw = facts->preemptions;
	task->start_time = facts->start_ns;
	task->in_iowait = facts->is_io;
	task->throttled = facts->is_throttled;
	task->thread_info.flags = facts->has_signal ? SIGNAL_FLAGS : 0;
	task->blocked_on = (void *)facts->blocked_on;
	task->blocker = facts->blocker;
	waiter->lock = (void *)facts->pi_lock;
	task->pi_blocked_on = facts->pi_lock ? (void *)waiter : NULL;
	task->mm = (void *)facts->mm;
	if (facts->mm)
		host_list(facts, task);
	host_take_registers(facts, task);
	task->files = host_files(facts);
	host_depth = (long)facts->depth;
	return task;
}

/* All that a look finds out, as numbers, with the addresses of the stack behind them; how many there are. */
__u32 host_look(struct task_struct *task, __u64 numbers[256])
{
	const struct now_record *record = (const void *)host_seen;
	const struct now_thread *thread = &record->thread;
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	__u32 count = 0;

	host_seen_bytes = 0;
	__builtin_memset(host_seen, 0, sizeof(host_seen));
	look(&context);
	if (!host_seen_bytes)
		return 0;
	const __u64 told[] = {
		host_seen_bytes - sizeof(*thread),
		thread->task == (__u64)task,
		thread->mm,
		thread->start_ns,
		thread->switches,
		thread->lock.address,
		thread->lock.owner,
		thread->lock.count,
		thread->lock.kind,
		thread->lock.is_mmap_lock,
		thread->ip,
		thread->sp,
		thread->bp,
		thread->tgid,
		thread->tid,
		thread->own_tid,
		thread->pid_namespace,
		(__u64)thread->call.syscall,
		thread->call.file_type,
		thread->call.futex_op,
		thread->call.futex_value,
		*(const __u64 *)thread->comm,
		thread->phase,
		thread->wait_flags,
		thread->wanted,
		thread->exact,
		thread->compat,
		thread->exiting,
		thread->depth,
	};

	for (; count < sizeof(told) / sizeof(told[0]); count++)
		numbers[count] = told[count];
	for (__u32 at = 0; at < SYSCALL_ARGUMENTS; at++)
		numbers[count++] = thread->arguments[at];
	for (__u32 at = 0; at < thread->depth && at < MAX_FRAMES; at++)
		numbers[count++] = record->addresses[at];
	return count;
}
