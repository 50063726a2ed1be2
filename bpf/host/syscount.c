/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* syscount.c: syscount's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_tracing.h>

static void *host_registers_of(const struct task_struct *task);

/* The register that holds the first argument differs between architectures: here it lies behind all others. */
#undef PT_REGS_PARM1_CORE_SYSCALL
#define PT_REGS_PARM1_CORE_SYSCALL(regs) (*(const __u64 *)((regs) + 1))
#undef bpf_task_pt_regs
#define bpf_task_pt_regs(task) host_registers_of(task)
#include "../syscount/syscount.bpf.c"
#include "numbered.h"

#define HOST_FILES 16

/* A task's memory, and what it points to. Descriptor n is a file of type n. */
struct host_body {
	struct task_struct task;
	struct pt_regs registers;
	__u64 argument;
	struct files_struct all;
	struct fdtable table;
	struct file *opened[HOST_FILES];
	struct file files[HOST_FILES];
	struct inode inodes[HOST_FILES];
};

static void *host_registers_of(const struct task_struct *task)
{
	return &((struct host_body *)task)->registers;
}

struct task_struct *host_thread(__u32 tid, __u32 flags, struct task_struct *leader, struct task_struct *parent)
{
	struct host_body *body = host_make_task(sizeof(*body));

	body->task.group_leader = leader ?: &body->task;
	body->task.real_parent = parent ?: &body->task;
	body->task.pid = tid;
	body->task.tgid = body->task.group_leader->pid;
	body->task.flags = flags;
	body->task.files = &body->all;
	body->all.fdt = &body->table;
	body->table.fd = body->opened;
	body->table.max_fds = HOST_FILES;
	for (__u32 fd = 0; fd < HOST_FILES; fd++) {
		body->inodes[fd].i_mode = fd << 12 | 0644;
		body->files[fd].f_inode = &body->inodes[fd];
		body->opened[fd] = &body->files[fd];
	}
	return &body->task;
}

/* A thread as the kernel has it: its name, switches that it asked for, whether it runs, whether it is a zombie. */
void host_is(struct task_struct *task, const char comm[16], __u64 sleeps, bool runs, bool dead)
{
	__builtin_memcpy(task->comm, comm, sizeof(task->comm));
	task->nvcsw = sleeps;
	task->on_cpu = runs;
	task->__state = dead ? TASK_DEAD : 0;
}

/* The register that holds a system call's number. */
static __u32 host_number_at(void)
{
	struct pt_regs numbered = host_numbered();

	return syscall_number(&numbered) - 1;
}

/* Registers that the entry into the kernel has saved. */
void host_saved(struct task_struct *task, __s64 number, bool compat, __u64 argument)
{
	struct host_body *body = (void *)task;

	((__s64 *)&body->registers)[host_number_at()] = number;
	body->argument = argument;
#ifdef TS_COMPAT
	task->thread_info.status = compat ? TS_COMPAT : 0;
#else
	task->thread_info.flags = compat ? TIF_32BIT : 0;
#endif
}

/* The current thread enters a call. */
void host_enters(__s64 number)
{
	unsigned long long context[] = { (__u64)host_registers_of(host_current()), number };

	sys_enter(context);
}

void host_returns(__s64 value)
{
	unsigned long long context[] = { (__u64)host_registers_of(host_current()), value };

	sys_exit(context);
}

void host_seed(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	seed_members(&context);
}

/* Its memory goes to nobody else. */
void host_ends(struct task_struct *task)
{
	unsigned long long context[] = { (__u64)task };

	if (members_in_hash)
		task_freed(context);
	host_free_task(task);
}

void host_count_open(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	count_open_calls(&context);
}

/* A process is meant from its exec on. */
void host_want(__u32 command)
{
	__u8 executed = 0;

	bpf_map_update_elem(&target_tgids, &command, &executed, BPF_ANY);
}

/* All that user space sets. */
void host_window(__u64 start_ns, __u64 end_ns, __u64 edge, __u32 half, __u32 open_half, bool is_taken)
{
	window_start_ns = start_ns;
	window_end_ns = end_ns;
	edge_ns = edge;
	epoch = half;
	open_epoch = open_half;
	is_open_taken = is_taken;
}
