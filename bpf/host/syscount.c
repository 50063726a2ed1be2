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
#include "processes.h"

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

void host_rename(struct task_struct *task, const char comm[16])
{
	unsigned long long context[] = { (__u64)task, (__u64)comm };

	task_rename(context);
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

/* Calls whose first argument is a descriptor; a command's process, which is one from its exec on, or a letter that names begin
 * with; 0: all.
 */
void host_ask(const struct syscount_config *asked, const __u64 takes_fd[SYSCALLS_MAX / 64], __u32 own_tgid, __u32 command, char letter,
	      bool in_hash)
{
	struct target_config whom = {
		.own_tgid = own_tgid,
		.own_since_ns = ~0ULL,
		.by_tgid = command != 0,
		.follow = command != 0,
		.by_comm = letter != 0,
	};
	struct glob glob = { .star = 1 << 1, .final_mask = 1 << 2 };
	struct wait_config calls = {};
	__u32 hashed = in_hash;
	__u8 executed = 0;

	glob.accept[(__u8)letter] = 1 << 0;
	__builtin_memcpy(calls.takes_fd, takes_fd, sizeof(calls.takes_fd));
	host_poke(&config, asked, sizeof(config));
	host_poke(&targets, &whom, sizeof(targets));
	host_poke(&comm_glob, &glob, sizeof(comm_glob));
	host_poke(&waits, &calls, sizeof(waits));
	host_poke(&members_in_hash, &hashed, sizeof(members_in_hash));
	if (command)
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

/* A table's number, a group, what stands for its bucket, and up to three values. */
struct host_row {
	__u32 table;
	struct group_id id;
	__u32 bucket;
	__u64 values[3];
};

struct host_rows {
	void (*row)(void *to, const struct host_row *row);
	void *to;
	__u32 half;
};

static bool host_hand_over(const struct host_rows *taking, __u32 table, const struct group_key *key, const __u64 values[3])
{
	struct host_row row = { table, key->id, key->bucket, { values[0], values[1], values[2] } };

	if (key->epoch != taking->half)
		return false;
	taking->row(taking->to, &row);
	return true;
}

static bool host_takes_group(const void *key, const void *value, void *to)
{
	__u64 values[3] = {};

	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		const struct sum *sum;

		host_set(0, cpu, NULL);
		sum = bpf_map_lookup_elem(&groups, key);
		values[0] += sum->count;
		values[1] += sum->total_ns;
		values[2] = sum->max_ns > values[2] ? sum->max_ns : values[2];
	}
	return host_hand_over(to, 0, key, values);
}

static bool host_takes_bucket(const void *key, const void *value, void *to)
{
	return host_hand_over(to, 1, key, (const __u64[]){ *(const __u64 *)value, 0, 0 });
}

static bool host_takes_sum(const void *key, const void *value, void *to)
{
	return host_hand_over(to, 2, key, (const __u64[]){ *(const __u64 *)value, 0, 0 });
}

/* Takes all that one half has. */
void host_take(__u32 half, void (*row)(void *to, const struct host_row *row), void *to)
{
	struct host_rows taking = { row, to, half };

	host_visit(&groups, host_takes_group, &taking);
	host_visit(&buckets, host_takes_bucket, &taking);
	host_visit(&sums, host_takes_sum, &taking);
}

/* Calls, those of them under way at the window's start, groups made; groups, buckets and sums without room; times that are negative;
 * targets without room.
 */
void host_told(__u64 told[8])
{
	__u32 zero = 0;

	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		const struct syscount_totals *here;

		host_set(0, cpu, NULL);
		here = bpf_map_lookup_elem(&totals, &zero);
		told[0] += here->calls;
		told[1] += here->under_way_at_start;
		told[2] += here->groups;
	}
	told[3] = groups_full;
	told[4] = buckets_full;
	told[5] = losses.sums_full;
	told[6] = losses.negative;
	told[7] = members_lost;
}
