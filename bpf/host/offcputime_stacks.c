/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime_stacks.c: offcputime's programs on this machine, where threads have stacks, and what a test asks of these. */
#include "vmlinux.h"
#include "host.h"
#include "no_endpoints.h"
#include "no_stacks.h"

#undef __KERNEL_STACK_CACHE_BPF_H__
#undef learn_dispatcher
#undef kernel_stack_print
#undef walked_stack
#undef remember_walk
#undef bpf_probe_read_kernel
#define bpf_probe_read_kernel(to, bytes, from) host_read(to, bytes, from)

static long host_read(void *to, __u64 bytes, const void *from);
static long host_walk(const struct task_struct *task, __u64 *addresses);
static __u64 host_intern_kernel(struct stack_scratch *scratch, long bytes);
static __u64 host_intern(__u32 slot);
static __u64 host_user_stack(const struct task_struct *task);
static __u64 host_own_kernel_stack(void);

#undef bpf_get_task_stack
#undef intern_kernel_stack
#undef intern_stack
#undef has_user_stack
#undef user_stack
#undef kernel_stack
#undef bpf_get_current_comm
#define bpf_get_current_comm(name, bytes) __builtin_memcpy(name, ((struct task_struct *)host_current())->comm, bytes)
#define bpf_get_task_stack(task, addresses, bytes, flags) host_walk(task, addresses)
#define intern_kernel_stack(slot, scratch, bytes) host_intern_kernel(scratch, bytes)
#define intern_stack(slot, tgid, urgent) host_intern(slot)
#define has_user_stack(task) (!((task)->flags & PF_KTHREAD))
#define user_stack(slot, scratch, task, tgid) host_user_stack(task)
#define kernel_stack(ctx, slot, scratch) host_own_kernel_stack()
/* Nobody asks for single waits. */
#undef bpf_ringbuf_query
#undef bpf_ringbuf_output
#define bpf_ringbuf_query(ring, what) 0
#define bpf_ringbuf_output(ring, record, bytes, flags) 0
#include "../offcputime/offcputime.bpf.c"
#include "threads.h"
#include "call_number.h"

/* A quarter of the threads are the kernel's. */
static void host_give(struct task_struct *task)
{
	task->flags = task->pid % 4 == 3 ? PF_KTHREAD : 0;
}

/* A stack that is walked; negative: an error. Without one every thread has a stack of its own at each absence. */
static __u64 host_frames[MAX_STACK_DEPTH];
static long host_frame_bytes;
static bool host_has_frames, host_is_unreadable, host_ring_is_full;
static __u64 host_walks;

static __u64 host_stack_bytes[KERNEL_STACK_BYTES / 8];

static long host_read(void *to, __u64 bytes, const void *from)
{
	if (host_is_unreadable)
		return -14;
	__builtin_memcpy(to, from, bytes);
	return 0;
}

#define HOST_KERNEL 1
#define HOST_OWN 2
#define HOST_USER 3

/* A number for a stack of a thread's absence. */
__u64 host_stack_of(__u32 kind, __u32 tid, __u64 switches)
{
	return (__u64)kind << 60 | (__u64)tid << 32 | switches;
}

static long host_walk(const struct task_struct *task, __u64 *addresses)
{
	host_walks++;
	if (!host_has_frames) {
		addresses[0] = host_stack_of(HOST_KERNEL, task->pid, switches_of((void *)task));
		return sizeof(*addresses);
	}
	if (host_frame_bytes > 0)
		__builtin_memcpy(addresses, host_frames, host_frame_bytes);
	return host_frame_bytes;
}

/* A stack of one address is known by it, others by their sum. */
__u64 host_id(const __u64 *addresses, __u32 depth)
{
	__u64 id = 0;

	for (__u32 at = 0; at < depth; at++)
		id = id * 31 + addresses[at];
	return id;
}

static __u64 host_intern_kernel(struct stack_scratch *scratch, long bytes)
{
	if (bytes <= 0 || host_ring_is_full)
		return 0;
	scratch->record.depth = bytes / sizeof(__u64);
	return host_id(scratch->record.addresses, scratch->record.depth);
}

static __u64 host_user_stack(const struct task_struct *task)
{
	return has_user_stack(task) ? host_stack_of(HOST_USER, task->pid, switches_of((void *)task)) : 0;
}

/* The current thread's stack. */
static __u64 host_own_kernel_stack(void)
{
	struct task_struct *task = host_current();

	return host_stack_of(HOST_OWN, task->pid, switches_of(task));
}

/* Record of the thread that woke another last. */
static struct stack_record host_waker;

static __u64 host_intern(__u32 slot)
{
	host_waker = scratch_at(slot)->record;
	return 1 + host_waker.addresses[0];
}

/* A thread's absence that ends. Its stack is these words up to its top, and a walk of it gives these frames. */
struct host_absence {
	const __u64 *words;
	const __u64 *frames;
	__u32 count;
	__s32 depth;
	__u64 syscall;
	bool is_kernel_thread;
	bool is_unreadable;
	bool is_ring_full;
};

__u64 host_resume(const struct host_absence *absence)
{
	struct task_struct task = { .stack = host_stack_bytes };
	__u32 size = sizeof(host_stack_bytes) / sizeof(*host_stack_bytes);

	__builtin_memcpy(&host_stack_bytes[size - absence->count], absence->words, absence->count * sizeof(__u64));
	/* Words that the switch saved lie below. */
	*(unsigned long *)&task.thread = (unsigned long)&host_stack_bytes[size - absence->count] - switched_out_sp(&task);
	task.flags = absence->is_kernel_thread ? PF_KTHREAD : 0;
	host_enter(host_registers(), absence->syscall);
	host_has_frames = true;
	host_frame_bytes = absence->depth * (long)sizeof(__u64);
	if (absence->depth > 0)
		__builtin_memcpy(host_frames, absence->frames, host_frame_bytes);
	host_is_unreadable = absence->is_unreadable;
	host_ring_is_full = absence->is_ring_full;
	return resumed_kernel_stack(&task);
}

/* True: the kernel says where the stack of a thread ends that is off its CPU. */
bool host_looks(void)
{
	struct task_struct task = {};

	return switched_out_sp(&task);
}

static bool host_counts(const void *key, const void *value, void *to)
{
	++*(__u64 *)to;
	return false;
}

/* Walks until now, stacks that are remembered, and the dispatcher's lowest and highest address; 0: not known. */
void host_cache(__u64 told[4])
{
	told[0] = host_walks;
	told[1] = 0;
	host_visit(&walked_stacks, host_counts, &told[1]);
	told[2] = dispatcher_low;
	told[3] = dispatcher_high;
}

void host_begin(__u64 now)
{
	struct offcputime_config all = {
		.max_ns = ~0ULL,
		.state_mask = STATE_ANY,
	};

	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

/* Options that the user gives, and whether stacks are walked where a thread leaves the scheduler. */
void host_ask(bool no_user, bool no_kernel, bool wakers, bool walk_on_exit, __u64 stacks_from)
{
	struct offcputime_config asked = config;

	asked.stacks.no_user = no_user;
	asked.stacks.no_kernel = no_kernel;
	asked.wakers = wakers;
	asked.walk_on_exit = walk_on_exit;
	host_poke(&config, &asked, sizeof(asked));
	stacks_from_ns = stacks_from;
}

void host_end(__u64 now)
{
	window_end_ns = now;
	takes_late = 1;
}

/* Thread, process, name (2), kernel and user stack, number of these, kind and end. */
void host_take_waker(__u64 told[9])
{
	told[0] = host_waker.addresses[0];
	told[1] = host_waker.tgid;
	__builtin_memcpy(&told[2], &host_waker.addresses[1], 16);
	told[4] = host_waker.addresses[3];
	told[5] = host_waker.addresses[4];
	told[6] = host_waker.depth;
	told[7] = host_waker.kind;
	told[8] = host_waker.end;
}

/* Kernel addresses that are told of a living target after the window's end, and the first one. */
__u32 host_open_depth(struct task_struct *task, __u64 *first)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct open_phase_record *record;

	waiting_members(&context);
	record = host_written();
	*first = record && record->open.depth ? record->addresses[0] : 0;
	return record ? record->open.depth : 0;
}

/* The user stack that a living target walked before it began the wait that is open at the window's end. */
__u64 host_left_stack(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct open_phase_record *record;

	close_members(&context);
	record = host_written();
	return record ? record->open.user_stack : 0;
}

/* Programs are attached for another window of several, which will open. */
void host_expect_another(void)
{
	walk_on_leaving = 1;
}

/* The user stack that a living target is told to have before the window opens. */
__u64 host_open_stack(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct open_phase_record *record;

	open_members(&context);
	record = host_written();
	return record ? record->open.user_stack : 0;
}

/* The user stack that a target has walked for the wait that it is in. */
__u64 host_walked_stack(struct task_struct *task)
{
	return member_of(task)->user_stack;
}
