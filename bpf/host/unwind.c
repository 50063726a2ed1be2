/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* unwind.c: the stack unwinder on this machine, and what a test asks of it. The user's memory is the test's. Of the kernel's there
 * is as much as the test has made, and reads of any other address fail. Kernels lack what the test says.
 */
#include "vmlinux.h"
#include "host.h"
#include "lacks.h"

static long host_read_kernel(void *to, __u64 bytes, const void *from);
static long host_read_user(void *to, __u64 bytes, const void *from);
static void *host_seek(const void *map, const struct host_shape *shape, const void *key);
static long host_output(const void *record, __u64 bytes, __u64 flags);
static long host_get_stack(void *to);
static const void *host_registers_of(const void *task);

#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)

#undef HOST_READ1
#undef HOST_READ2
#undef HOST_READ3
#define HOST_READ1(from, a)                                                             \
	({                                                                              \
		typeof((from)->a) host_value;                                           \
		host_read_kernel((void *)&host_value, sizeof(host_value), (void *)&(from)->a); \
		host_value;                                                             \
	})
#define HOST_READ2(from, a, b) HOST_READ1(HOST_READ1(from, a), b)
#define HOST_READ3(from, a, b, c) HOST_READ1(HOST_READ2(from, a, b), c)
#undef bpf_core_read
#undef bpf_probe_read_kernel
#define bpf_core_read(to, bytes, from) host_read_kernel(to, bytes, from)
#define bpf_probe_read_kernel(to, bytes, from) host_read_kernel(to, bytes, from)
#define bpf_probe_read_user(to, bytes, from) host_read_user(to, bytes, from)
#undef bpf_task_pt_regs
#define bpf_task_pt_regs(task) ((long)host_registers_of(task))

#ifndef HOST_IS_ARM64
/* Registers in which the ABI passes arguments to a system call. */
#define PT_REGS_PARM1_SYSCALL(regs) ((regs)->di)
#define PT_REGS_PARM2_SYSCALL(regs) ((regs)->si)
#define PT_REGS_PARM3_SYSCALL(regs) ((regs)->dx)
#define PT_REGS_PARM4_SYSCALL(regs) ((regs)->r10)
#define PT_REGS_PARM5_SYSCALL(regs) ((regs)->r8)
#define PT_REGS_PARM6_SYSCALL(regs) ((regs)->r9)
#define PT_REGS_PARM1_CORE_SYSCALL(regs) HOST_READ1(regs, di)
#define PT_REGS_PARM2_CORE_SYSCALL(regs) HOST_READ1(regs, si)
#define PT_REGS_PARM3_CORE_SYSCALL(regs) HOST_READ1(regs, dx)
#define PT_REGS_PARM4_CORE_SYSCALL(regs) HOST_READ1(regs, r10)
#define PT_REGS_PARM5_CORE_SYSCALL(regs) HOST_READ1(regs, r8)
#define PT_REGS_PARM6_CORE_SYSCALL(regs) HOST_READ1(regs, r9)
#endif
#include <bpf/bpf_tracing.h>

/* A map in a map is only an address. */
struct host_inner {
	int (*type)[2];
	int (*max_entries)[1];
	__u32 *key;
	__u64 *value;
};
#define __array(name, of) \
	typeof(of) *name; \
	typeof(of) *value
#define HOST_TYPED(map) \
	__builtin_choose_expr(__builtin_types_compatible_p(typeof(map), void *), (struct host_inner *)0, (map))
#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem(map, key) host_seek(map, HOST_TABLE(HOST_TYPED(map)), key)

static __u64 host_unread;

#define bpf_ringbuf_output(ring, record, bytes, flags) host_output(record, bytes, flags)
#define bpf_ringbuf_query(ring, what) host_unread
#define bpf_get_stack(ctx, to, bytes, flags) host_get_stack(to)

#include "stacks.bpf.h"
#include "stack_limit.bpf.h"

/* Kernel memory, in pieces that lie where nodes of the kernel's trees may. */
#define HOST_PIECE 256
static __u8 host_kernel[1 << 20] __attribute__((aligned(HOST_PIECE)));
static __u64 host_kernel_used;
static struct user_regs *host_copy;

void *host_make(__u64 bytes)
{
	void *made = &host_kernel[host_kernel_used];

	host_kernel_used += (bytes + HOST_PIECE - 1) / HOST_PIECE * HOST_PIECE;
	if (host_kernel_used > sizeof(host_kernel))
		__builtin_abort();
	return made;
}

static long host_read_kernel(void *to, __u64 bytes, const void *from)
{
	__u64 at = (__u64)from - (__u64)host_kernel;

	if (at >= host_kernel_used || bytes > host_kernel_used - at) {
		__builtin_memset(to, 0, bytes);
		return -14;
	}
	__builtin_memcpy(to, from, bytes);
	return 0;
}

typedef bool (*host_reader)(const void *of, __u64 from, __u64 bytes, void *to);
static host_reader host_reads;
static const void *host_reads_of;

void host_remember(host_reader reads, const void *of)
{
	host_reads = reads;
	host_reads_of = of;
}

static long host_read_user(void *to, __u64 bytes, const void *from)
{
	if (host_reads(host_reads_of, (__u64)from, bytes, to))
		return 0;
	__builtin_memset(to, 0, bytes);
	return -14;
}

static struct unwind_chunk *host_chunks[MAX_CHUNKS];
static __u64 host_seeks;

static void *host_seek(const void *map, const struct host_shape *shape, const void *key)
{
	__u32 index = *(const __u32 *)key;

	if (map == &unwind_chunks) {
		host_seeks++;
		return index < MAX_CHUNKS ? host_chunks[index] : NULL;
	}
	/* A chunk's map and its only value have one address. */
	for (int at = 0; at < MAX_CHUNKS; at++)
		if (map == host_chunks[at])
			return index ? NULL : host_chunks[at];
	return host_lookup(map, shape, key);
}

/* Number of looks into tables, of which a search takes several. */
__u64 host_searches(void)
{
	return host_seeks;
}

void host_words(__u32 at, const __u32 *words, __u32 count)
{
	for (__u32 word = 0; word < count; word++, at++) {
		struct unwind_chunk **chunk = &host_chunks[at >> CHUNK_SHIFT];

		if (!*chunk)
			*chunk = __builtin_calloc(1, sizeof(**chunk));
		(*chunk)->words[at & CHUNK_MASK] = words[word];
	}
}

void host_rules(const struct unwind_rule *rules, __u32 count)
{
	__u32 zero = 0;
	struct unwind_rules *all = bpf_map_lookup_elem(&unwind_rules, &zero);

	__builtin_memcpy(all->rules, rules, count * sizeof(*rules));
}

void host_process(__u32 tgid, const struct unwind_process *process)
{
	if (process)
		bpf_map_update_elem(&unwind_processes, &tgid, process, BPF_ANY);
	else
		bpf_map_delete_elem(&unwind_processes, &tgid);
}

bool host_process_of(__u32 tgid, struct unwind_process *to)
{
	struct unwind_process *process = bpf_map_lookup_elem(&unwind_processes, &tgid);

	if (process)
		*to = *process;
	return process;
}

void host_file(const struct unwind_file *file, const struct unwind_file_table *table)
{
	bpf_map_update_elem(&unwind_files, file, table, BPF_ANY);
}

static bool host_forgets_file(const void *key, const void *value, void *to)
{
	return true;
}

/* Another machine: no kernel memory, tables or files; what is cached stays. */
void host_forget(void)
{
	__builtin_memset(host_kernel, 0, host_kernel_used);
	host_kernel_used = 0;
	host_copy = NULL;
	host_visit(&unwind_files, host_forgets_file, NULL);
	host_visit(&unwind_processes, host_forgets_file, NULL);
	for (int at = 0; at < MAX_CHUNKS; at++) {
		__builtin_free(host_chunks[at]);
		host_chunks[at] = NULL;
	}
}

void host_python(__u32 number, const struct python_layout *layout)
{
	bpf_map_update_elem(&pythons, &number, layout, BPF_ANY);
}

#ifndef HOST_IS_ARM64
/* Thread-local data of a thread lies around there. */
void host_thread_pointer(struct task_struct *task, __u64 address)
{
	task->thread.fsbase = address;
}
#endif

void host_walk_by(__u32 mode)
{
	host_poke(&unwind_mode, &mode, sizeof(mode));
}

/* A thread alone in its process. Without an address space it has no user stack. */
struct task_struct *host_thread(__u32 tgid, __u32 flags, bool has_memory, __u64 start_stack, __u64 vdso)
{
	struct task_struct *task = host_make(sizeof(*task));

	task->pid = task->tgid = tgid;
	task->group_leader = task;
	task->flags = flags;
	task->stack = host_make(KERNEL_STACK_BYTES);
	if (!has_memory)
		return task;
	task->mm = host_make(sizeof(*task->mm));
	task->mm->start_stack = start_stack;
	task->mm->context.vdso = (void *)vdso;
	return task;
}

static struct user_regs host_given;

/* Its registers in user space, in the order of struct user_regs. */
void host_enter(struct task_struct *task, const struct user_regs *registers)
{
	struct user_regs *at = task->stack + KERNEL_STACK_BYTES - user_regs_bytes();

	*at = *registers;
	host_given = *registers;
}

/* The kernel's own function knows them elsewhere, too. */
static const void *host_registers_of(const void *task)
{
	if (!host_has("BPF_FUNC_task_pt_regs"))
		__builtin_abort();
	if (!host_copy)
		host_copy = host_make(sizeof(*host_copy));
	*host_copy = host_given;
	return host_copy;
}

/* Known to the kernel by this; times in words of 8 bytes: seconds, and nanoseconds. */
struct file *host_open(__u64 inode, __u32 device, __u64 seconds, __u32 ns)
{
	struct file *file = host_make(sizeof(*file));

	file->f_inode = host_make(sizeof(*file->f_inode));
	file->f_inode->i_ino = inode;
	file->f_inode->i_ctime_sec = seconds;
	file->f_inode->i_ctime_nsec = ns;
	file->f_inode->i_sb = host_make(sizeof(*file->f_inode->i_sb));
	file->f_inode->i_sb->s_dev = device;
	return file;
}

/* Time at which an older kernel says that the file has changed: seconds and nanoseconds in front of its inode. */
__u64 host_changed_in_front(const struct file *file)
{
	const __u64 *words = (const void *)file->f_inode;

	return words[0] * 1000000000 + words[1];
}

/* `of`: whose address space it is in. */
struct vm_area_struct *host_map(const struct task_struct *of, __u64 begin, __u64 end, __u64 page, struct file *file)
{
	struct vm_area_struct *vma = host_make(sizeof(*vma));

	vma->vm_start = begin;
	vma->vm_end = end;
	vma->vm_mm = of ? of->mm : NULL;
	vma->vm_pgoff = page;
	vma->vm_file = file;
	return vma;
}

/* A node of this type, as entry of another. */
__u64 host_node(__u32 type, const __u64 *pivots, __u32 most_pivots, const __u64 *slots, __u32 most_slots)
{
	__u64 *node = host_make(sizeof(struct maple_range_64));

	__builtin_memcpy(node + 1, pivots, most_pivots * sizeof(*pivots));
	__builtin_memcpy(node + 1 + most_pivots, slots, most_slots * sizeof(*slots));
	return (__u64)node | type << MAPLE_TYPE_SHIFT | 4;
}

void host_plant(struct task_struct *task, __u64 root)
{
	task->mm->mm_mt.ma_root = (void *)root;
}

__u64 host_user_stack(__u32 slot, struct task_struct *task, __u32 tgid)
{
	return user_stack(slot, scratch_at(slot), task, tgid);
}

__u64 host_user_stack_from(__u32 slot, struct task_struct *task, __u32 tgid, const __u64 from[3])
{
	return user_stack_from(slot, scratch_at(slot), task, tgid, from[0], from[1], from[2]);
}

void host_walked(__u32 slot, struct stack_record *to)
{
	*to = scratch_at(slot)->record;
}

void host_compare(__u32 slot, __u64 outer_sp)
{
	scratch_at(slot)->unwind.outer_sp = outer_sp;
}

__u32 host_inside(__u32 slot)
{
	return scratch_at(slot)->unwind.inside;
}

#ifndef HOST_IS_ARM64
__u32 host_find_exit(__u64 ip, __u64 sp, __u32 exact)
{
	return find_exit(ip, sp, exact);
}
#endif

/* Bits of return addresses that are addresses. */
void host_mask(__u64 mask)
{
	host_poke(&code_mask, &mask, sizeof(mask));
}

#include "unwind_kept.h"
