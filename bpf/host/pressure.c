/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* pressure.c: pressure's programs on this machine, and what a test asks of them. A stack is known by the thread whose it is. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Programs that take no arguments at all are among these. */
#define HOST_MORE0
#define HOST_MORE1 , HOST_ARGUMENT(0)
#define HOST_MORE2 HOST_MORE1, HOST_ARGUMENT(1)
#define HOST_MORE3 HOST_MORE2, HOST_ARGUMENT(2)
#define HOST_MORE4 HOST_MORE3, HOST_ARGUMENT(3)
#define HOST_PICK(none, a, b, c, d, more, ...) more
#define HOST_MORE(...) HOST_PICK(none, ##__VA_ARGS__, HOST_MORE4, HOST_MORE3, HOST_MORE2, HOST_MORE1, HOST_MORE0)
#undef BPF_PROG
#define BPF_PROG(name, ...)                                                                   \
	name(unsigned long long *ctx);                                                         \
	static inline int host_##name(unsigned long long *ctx, ##__VA_ARGS__);                 \
	int name(unsigned long long *ctx)                                                      \
	{                                                                                      \
		_Pragma("GCC diagnostic push")                                                 \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                         \
		return host_##name(ctx HOST_MORE(__VA_ARGS__));                                \
		_Pragma("GCC diagnostic pop")                                                  \
	}                                                                                      \
	static inline int host_##name(unsigned long long *ctx, ##__VA_ARGS__)

/* User space makes room for all CPUs where there is not one value for each already. */
#define HOST_ENTRIES(map) (sizeof(*(map)->max_entries) / sizeof(int))
#define HOST_ROOM(map) (HOST_ENTRIES(map) == 1 && !HOST_IS(map, PERCPU_ARRAY) ? HOST_CPUS : HOST_ENTRIES(map))
#undef HOST_TABLE
#define HOST_TABLE(map) HOST_SHAPE(map, sizeof(*(map)->key), HOST_ROOM(map))

#define BPF_CORE_READ_BITFIELD_PROBED(from, field) ((from)->field)
#define BPF_CORE_READ_INTO(to, from, a, b) __builtin_memcpy(to, &(from)->a->b, sizeof(*(to)))
#define bpf_spin_lock(lock) host_lock(lock)
#define bpf_spin_unlock(lock) (*(__u32 *)(lock) -= 1)

/* Locks that were held already, and scratches in use. */
__u32 host_deadlocks;
__s32 host_claimed;
static bool host_is_busy;

static void host_lock(void *lock)
{
	host_deadlocks += (*(__u32 *)lock)++ != 0;
}

#include "no_stacks.h"

#define HOST_KERNEL_STACK 1000
#define HOST_USER_STACK 2000
#define HOST_OTHERS_STACK 3000

static struct stack_scratch *host_claim(__u32 *slot)
{
	if (host_is_busy)
		return NULL;
	host_claimed++;
	return scratch_at(*slot = 0);
}

static __u64 host_kernel_stack(void *ctx, __u32 slot, struct stack_scratch *scratch)
{
	return HOST_KERNEL_STACK + ((struct task_struct *)host_current())->pid;
}

static __u64 host_user_stack(__u32 slot, struct stack_scratch *scratch, struct task_struct *task, __u32 tgid)
{
	return (__u32)task->tgid == tgid ? HOST_USER_STACK + task->pid : 0;
}

static long host_task_stack(struct task_struct *task, void *addresses, __u32 bytes, __u64 flags)
{
	if (bytes != MAX_STACK_DEPTH * sizeof(__u64) || flags)
		return 0;
	*(__u64 *)addresses = task->pid;
	return sizeof(__u64);
}

static __u64 host_intern(__u32 slot, struct stack_scratch *scratch, long bytes)
{
	return bytes == sizeof(__u64) ? HOST_OTHERS_STACK + scratch->record.addresses[0] : 0;
}

#undef user_stack
#undef kernel_stack
#undef intern_kernel_stack
#undef bpf_get_task_stack
#define kernel_stack(ctx, slot, scratch) host_kernel_stack(ctx, slot, scratch)
#define user_stack(slot, scratch, task, tgid) host_user_stack(slot, scratch, task, tgid)
#define intern_kernel_stack(slot, scratch, bytes) host_intern(slot, scratch, bytes)
#define bpf_get_task_stack(task, addresses, bytes, flags) host_task_stack(task, addresses, bytes, flags)
#define claim_scratch(slot) host_claim(slot)
#define release_scratch(scratch) ((void)(scratch), host_claimed--)
#include "../pressure/pressure.bpf.c"
#include "scheduler.h"

/* A thread's facts, as a test has them. */
struct host_facts {
	char comm[16];
	__u64 voluntary;
	__u64 involuntary;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 read_bytes;
	__u64 written_bytes;
	__u32 state;
	__u32 cpu;
	bool runs;
	bool queued;
	/* Asleep, and on the queue as long as its lag lasts. */
	bool delayed;
	bool io;
	bool memory;
	bool throttled;
	bool signalled;
	/* It hands on what others have submitted. */
	bool stacked;
};

/* A task's memory, and what it points to. */
struct host_body {
	struct task_struct task;
	struct css_set set;
	struct cgroup cgroup;
	struct kernfs_node node;
};

struct task_struct *host_thread(__u32 tid, __u32 flags, __u64 start_time, __u64 cgroup_id, struct task_struct *leader)
{
	struct host_body *body = host_make_task(sizeof(*body));

	body->task.group_leader = leader ?: &body->task;
	body->task.real_parent = &body->task;
	body->task.pid = tid;
	body->task.tgid = body->task.group_leader->pid;
	body->task.flags = flags;
	body->task.start_time = start_time;
	body->task.cgroups = &body->set;
	body->set.dfl_cgrp = &body->cgroup;
	body->cgroup.kn = &body->node;
	body->node.id = cgroup_id;
	return &body->task;
}

void host_is(struct task_struct *task, const struct host_facts *facts)
{
	__builtin_memcpy(task->comm, facts->comm, sizeof(task->comm));
	task->nvcsw = facts->voluntary;
	task->nivcsw = facts->involuntary;
	task->min_flt = facts->minor_faults;
	task->maj_flt = facts->major_faults;
	task->ioac.read_bytes = facts->read_bytes;
	task->ioac.write_bytes = facts->written_bytes;
	task->__state = facts->state;
	task->thread_info.cpu = facts->cpu;
	task->thread_info.flags = facts->signalled ? SIGNAL_FLAGS : 0;
	task->on_cpu = facts->runs;
	task->on_rq = facts->queued || facts->delayed;
	task->se.sched_delayed = facts->delayed;
	task->in_iowait = facts->io;
	task->in_memstall = facts->memory;
	task->throttled = facts->throttled;
	task->bio_list = facts->stacked ? (void *)task : NULL;
}

/* An interrupt comes upon who holds a CPU's lock, and goes. */
void host_hold(__u32 cpu, bool held)
{
	if (held)
		bpf_map_update_elem(&stall_locks, &cpu, &locked, BPF_ANY);
	else
		bpf_map_delete_elem(&stall_locks, &cpu);
}

void host_lack(bool scratch, bool budget)
{
	host_is_busy = scratch;
	without_stacks = budget;
}

void host_edge(__u64 previous_ns, __u64 ns, __u32 half)
{
	previous_edge_ns = previous_ns;
	edge_ns = ns;
	epoch = half;
}

/* False: there is nothing to tell. */
bool host_take_stock(struct task_struct *task, struct task_stock *to)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct task_stock *stock;

	take_stock(&context);
	stock = host_written();
	if (stock)
		*to = *stock;
	return stock;
}

/* Tasks that wait, those without quota, whether something runs, since when, tasks × ns waited, and without quota. */
void host_cpu_told(__u32 cpu, __u64 told[6])
{
	const struct stalls *at = stalls_of(cpu);

	told[0] = at->counts[COUNT_WAITING];
	told[1] = at->counts[COUNT_THROTTLED];
	told[2] = at->busy;
	told[3] = at->since_ns;
	told[4] = at->waited_ns;
	told[5] = at->throttled_ns;
}
