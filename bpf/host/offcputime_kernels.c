/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime_kernels.c: what kernels of all ages say of a thread and of its wait, and what the programs' headers make of it. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_core_read.h>

static bool host_has(const char *name);
static __u32 host_flag_bytes;

#undef bpf_core_field_exists
#undef bpf_core_enum_value_exists
#undef bpf_core_field_size
#define bpf_core_field_exists(field) host_has(#field)
#define bpf_core_enum_value_exists(type, value) host_has(#value)
#define bpf_core_field_size(field) host_flag_bytes

/* Reads give 0 of what is not there, as the kernel's do. */
#undef HOST_READ1
#undef HOST_READ2
#undef HOST_READ3
#define HOST_READ1(from, a)                                  \
	({                                                   \
		__auto_type at = (from);                     \
		at ? at->a : (typeof(at->a))0;               \
	})
#define HOST_READ2(from, a, b) HOST_READ1(HOST_READ1(from, a), b)
#define HOST_READ3(from, a, b, c) HOST_READ1(HOST_READ2(from, a, b), c)

static long host_read(void *to, __u64 bytes, const void *from);
#undef bpf_probe_read_kernel
#define bpf_probe_read_kernel(to, bytes, from) host_read(to, bytes, from)

#include "parameters.h"

/* A pointer that needs no helper to be read through is told from one that does. */
static bool host_is_trusted;
#undef bpf_get_current_task_btf
#define bpf_get_current_task_btf() (host_is_trusted = true, (struct task_struct *)host_current())

#include "waits.bpf.h"
#include "call_number.h"

static const char *const host_names[] = {
	"task->__state",  "task->thread_info.cpu", "cgroup->ancestors",	 "task->se.sched_delayed",
	"task->throttled", "task->se.cfs_rq",	    "task->blocked_on",	 "task->blocker",
	"BPF_FUNC_task_pt_regs", "BPF_FUNC_get_current_task_btf", "queue->throttle_count",
};

/* Names of those above that the kernel lacks, a bit each. */
static __u32 host_lacks;

static bool host_has(const char *name)
{
	for (__u32 at = 0; at < sizeof(host_names) / sizeof(*host_names); at++)
		if (!__builtin_strcmp(host_names[at], name))
			return !(host_lacks & 1U << at);
	__builtin_trap();
}

/* Nothing is on the first page. */
static long host_read(void *to, __u64 bytes, const void *from)
{
	if ((__u64)from < 4096)
		return -14;
	__builtin_memcpy(to, from, bytes);
	return 0;
}

#define HOST_FILES 4

/* A thread as a kernel has it. Fields that it lacks are something else in their places. */
struct host_kernel {
	__u64 number;
	__u64 arguments[3];
	__u64 takes_fd[SYSCALLS_MAX / 64];
	__u32 lacks;
	__u32 flag_bytes;
	__s32 futex_syscall;
	__u32 state;
	__u32 state_in_place;
	__u32 old_word;
	__u32 cpu_in_place;
	__u32 on_cpu;
	__u32 on_rq;
	__u32 flags;
	/* 0: no signal came. */
	__u32 signal;
	__s32 throttle_count;
	__u32 max_fds;
	/* 1 + a descriptor. */
	__u32 polled;
	bool has_files;
	bool is_compat;
	bool is_preempted;
	bool is_delayed;
	bool is_throttled;
	bool is_real_time;
	bool has_queue;
	bool is_io;
	bool is_blocked_on;
	bool is_blocker;
	bool is_pi_blocked_on;
	/* 0: no file, 16: one without inode. */
	__u8 types[HOST_FILES];
};

struct host_told {
	__u32 state;
	__u32 cpu;
	__u32 flags;
	__s32 syscall;
	__u32 file_type;
	__u32 futex_op;
	__u32 futex_value;
	bool is_on_cpu;
	bool is_queued;
	bool is_throttled;
	bool is_trusted;
	bool is_current;
};

/* A thread's kernel stack, with room for arguments. */
static __u64 host_stack[KERNEL_STACK_BYTES / sizeof(__u64) + 3];

static void host_fill_registers(const struct host_kernel *kernel)
{
	bool is_helped = host_has("BPF_FUNC_task_pt_regs");
	void *top = (void *)host_stack + KERNEL_STACK_BYTES - user_regs_bytes();
	struct pt_regs *regs = is_helped ? host_registers() : top;

	/* Registers that lie elsewhere are another thread's. */
	host_enter(host_registers(), 1);
	host_enter(top, 1);
	host_enter(regs, kernel->number);
	for (__u32 at = 0; at < 3; at++)
		HOST_PARAMETER(regs, at) = kernel->arguments[at];
}

static void host_open_files(struct task_struct *task, const struct host_kernel *kernel)
{
	static struct inode inodes[HOST_FILES];
	static struct file files[HOST_FILES], *opened[HOST_FILES];
	static struct fdtable table;
	static struct files_struct all;

	for (__u32 fd = 0; fd < HOST_FILES; fd++) {
		inodes[fd].i_mode = kernel->types[fd] << 12 | 0644;
		files[fd].f_inode = kernel->types[fd] < 16 ? &inodes[fd] : NULL;
		opened[fd] = kernel->types[fd] ? &files[fd] : NULL;
	}
	table.max_fds = kernel->max_fds;
	table.fd = opened;
	all.fdt = &table;
	task->files = kernel->has_files ? &all : NULL;
}

void host_ask(const struct host_kernel *kernel, struct host_told *told)
{
	static struct cfs_rq queue;
	struct task_struct task = { .stack = host_stack, .prio = FAIR_PRIO - kernel->is_real_time };
	struct wait_config what = { .futex_syscall = kernel->futex_syscall };
	struct wait_call call;
	__u32 *first = (__u32 *)&task;

	host_lacks = kernel->lacks;
	host_flag_bytes = kernel->flag_bytes;
	__builtin_memcpy(what.takes_fd, kernel->takes_fd, sizeof(what.takes_fd));
	host_poke(&waits, &what, sizeof(what));
	host_fill_registers(kernel);
	host_open_files(&task, kernel);
	task.__state = kernel->state_in_place;
	task.thread_info.cpu = kernel->cpu_in_place;
	task.on_cpu = kernel->on_cpu;
	task.on_rq = kernel->on_rq;
	task.flags = kernel->flags;
	queue.throttle_count = kernel->throttle_count;
	task.se.sched_delayed = kernel->is_delayed;
	task.se.cfs_rq = kernel->has_queue ? &queue : NULL;
	task.throttled = kernel->is_throttled;
	task.in_iowait = kernel->is_io;
	task.blocked_on = kernel->is_blocked_on ? (void *)&task : NULL;
	task.blocker = kernel->is_blocker;
	task.pi_blocked_on = kernel->is_pi_blocked_on ? (void *)&task : NULL;

	/* Old kernels' fields are taken to be first of all. */
	*first = kernel->old_word;
	told->state = task_state(&task);
	told->cpu = task_cpu(&task);
	task.thread_info.flags = kernel->signal == 1 ? SIGNAL_FLAGS & -SIGNAL_FLAGS :
				 kernel->signal      ? SIGNAL_FLAGS & (SIGNAL_FLAGS - 1) :
						       ~SIGNAL_FLAGS;
#ifdef TS_COMPAT
	task.thread_info.status = kernel->is_compat ? TS_COMPAT : ~TS_COMPAT;
#else
	task.thread_info.flags &= ~TIF_32BIT;
	task.thread_info.flags |= kernel->is_compat ? TIF_32BIT : 0;
#endif
	told->is_on_cpu = is_on_cpu(&task);
	told->is_queued = is_queued(&task);
	told->is_throttled = is_throttled(&task);
	told->flags = wait_flags_of(&task, kernel->is_preempted, kernel->state);
	call = native_call_of(&task, kernel->polled);
	told->syscall = call.syscall;
	told->file_type = call.file_type;
	told->futex_op = call.futex_op;
	told->futex_value = call.futex_value;
	host_set(0, 0, &task);
	host_is_trusted = false;
	told->is_current = current_task() == &task;
	told->is_trusted = host_is_trusted;
}

/* The ancestor's id at that level of a cgroup that has these, 0 for one that is not there. */
__u64 host_ancestor(const __u64 *ids, __u32 count, __u32 level, bool is_old)
{
	static struct kernfs_node nodes[8];
	static struct cgroup cgroups[8];
	struct {
		struct cgroup cgroup;
		struct cgroup *ancestors[8];
	} now = {};

	host_lacks = is_old ? 1U << 2 : 0;
	if (is_old)
		return cgroup_ancestor_id((struct cgroup *)ids, level);
	for (__u32 at = 0; at < count; at++) {
		nodes[at].id = ids[at];
		cgroups[at].kn = &nodes[at];
		now.cgroup.ancestors[at] = ids[at] ? &cgroups[at] : NULL;
	}
	return cgroup_ancestor_id(&now.cgroup, level);
}
