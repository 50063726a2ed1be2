/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_owners.c: lockstat's programs for kernel locks that have owners and names, on this machine, and what a test asks of them. */
#include "kernel_layout.h"
#include "host.h"
#include "futex_registers.h"
#include "lock_stacks.h"

#undef bpf_ksym_exists
#define bpf_ksym_exists(symbol) host_has(#symbol)
#define bpf_probe_read_user(to, bytes, from) (-14)
#define bpf_get_prandom_u32() host_dice
/* The random number that programs get, which a test rolls. */
static __u32 host_dice;

#include "maps.bpf.h"
/* User space makes room for the run queues that there are; elsewhere more room than for one is never used. */
#define HOST_RUN_QUEUES 8
#undef MAP
#define MAP(kind, name, key_type, value_type, most)                            \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_##kind);                             \
		__uint(max_entries, (most) == 1 ? HOST_RUN_QUEUES : (most));   \
		__type(key, key_type);                                         \
		__type(value, value_type);                                     \
	} name SEC(".maps")
/* Pointers that only offsets are taken of. */
#pragma clang diagnostic ignored "-Wunused-variable"
/* The layout of kernel_layout.h. */
#define start_stack start_stack_at[0]
#include "../lockstat/lockstat.bpf.c"
#undef start_stack
#include "futex_numbers.h"
#include "lock_threads.h"

/* Slab caches: each has pages of its own. */
#define HOST_PAGE 4096
#define HOST_PAGES 64

static __u8 host_pages[HOST_PAGES][HOST_PAGE] __attribute__((aligned(HOST_PAGE)));
static struct kmem_cache host_slabs[HOST_PAGES];

struct kmem_cache *bpf_get_kmem_cache(u64 address)
{
	__u64 at = (address - (__u64)host_pages) / HOST_PAGE;

	return at < HOST_PAGES && host_slabs[at].name ? &host_slabs[at] : NULL;
}

/* Page `at`; its cache has that name, if there is one, and is `shared` with other types. */
void *host_page(__u32 at, const char *slab, bool is_merged)
{
	host_slabs[at] = (struct kmem_cache){ .name = slab, .refcount = is_merged ? 2 : 1 };
	return host_pages[at];
}

/* Options, told before the window opens. */
void host_begin(bool kernel_locks, bool holder_stacks, bool no_user, bool no_kernel)
{
	struct lockstat_config all = {
		.interrupts = 1,
		.kernel_locks = kernel_locks,
		.holder_stacks = holder_stacks,
		.releasers = { .no_user = no_user, .no_kernel = no_kernel },
	};

	host_learn_registers();
	host_poke(&config, &all, sizeof(all));
}

/* The window opens then. */
void host_open(__u64 at)
{
	window_start_ns = at;
}

void host_roll(__u32 dice, bool without)
{
	host_dice = dice;
	without_stacks = without;
}

struct task_struct *host_thread(__u32 tid, __u32 tgid)
{
	struct task_struct *task = host_make_task(HOST_TASK_BYTES);

	task->pid = tid;
	task->tgid = tgid;
	task->group_leader = task->real_parent = task;
	task->comm[0] = 't';
	task->comm[1] = '0' + tid / 10;
	task->comm[2] = '0' + tid % 10;
	if (tid)
		host_threads[tid] = task;
	return task;
}

void host_memory(struct task_struct *task, void *mm)
{
	task->mm = mm;
}

/* All that a lock says of its owner, in so many words. */
void host_owned(__u64 *lock, __u32 words, __u64 owner)
{
	for (__u32 at = 0; at < words; at++)
		lock[at] = owner;
}

#include "lockstat_rows.h"

/* Beginnings without an end, ends without a beginning, beginnings before the window, stacks that found no scratch, the same of holders,
 * maxima; what found no room: locks, their ns, buckets, waiters, their ns, holders, names. Then what must never happen.
 */
void host_told(__u64 told[14])
{
	told[0] = kernel_lock_losses.unended;
	told[1] = kernel_lock_losses.unbegun;
	told[2] = begun_before;
	told[3] = kernel_lock_losses.unwalked;
	told[4] = lock_losses.holders_unwalked;
	told[5] = lock_losses.maxima_raced;
	told[6] = lock_losses.locks_full;
	told[7] = lock_losses.locks_full_ns;
	told[8] = lock_losses.buckets_full;
	told[9] = lock_losses.waiters_full;
	told[10] = lock_losses.waiters_full_ns;
	told[11] = lock_losses.holders_full;
	told[12] = lock_losses.names_full;
	told[13] = lock_losses.negative + kernel_lock_losses.nested + host_references + host_claims +
		   host_misnamed;
}

static __u64 host_letters(const __u8 *comm)
{
	__u64 letters;

	__builtin_memcpy(&letters, comm, sizeof(letters));
	return letters;
}

static bool host_tells_name(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_id *lock = of;
	const struct lock_name *name = value;

	HOST_ROW(taking, HOST_LOCK(4, *lock), name->number, name->kernel_stack, name->kind, name->file_type, host_letters(name->slab),
		 host_letters(name->text), host_letters(name->device));
	return false;
}

/* Names, which stay: the lock, then what the function above says. */
void host_tell(host_row *row, void *to)
{
	struct host_taking taking = { 0, row, to };

	host_visit(&lock_names, host_tells_name, &taking);
}

/* Places of locks, some of which have names: enum lock_name_kind, and what only looks like an inode. */
#define HOST_NO_INODE 10

static void *host_in_inode(__u8 *page, __u32 kind)
{
	static struct super_block block = { .s_id = "sda1" };
	struct inode *inode = (void *)(page + 512);
	struct dentry *dentry = (void *)(page + 1024);

	inode->i_ino = (__u64)(page - host_pages[0]) / HOST_PAGE + 1000;
	inode->i_mode = 0100644;
	inode->i_sb = &block;
	inode->i_data.host = kind == HOST_NO_INODE ? (void *)page : inode;
	if (inode->i_ino % 2) {
		dentry->d_name.name = page + 2048;
		__builtin_memcpy(page + 2048, "a.txt", 6);
		inode->i_dentry.first = (void *)dentry + offset_of_alias();
	}
	switch (kind) {
	case LOCK_NAME_INODE_QUEUE:
		return (void *)&inode->i_rwsem + __builtin_offsetof(struct rw_semaphore, wait_lock);
	case LOCK_NAME_INODE_STATE:
		return &inode->i_lock;
	case LOCK_NAME_INODE_MAPPINGS:
		return &inode->i_data.i_mmap_rwsem;
	case LOCK_NAME_INODE_INVALIDATE:
		return &inode->i_data.invalidate_lock;
	case LOCK_NAME_INODE_PAGES:
		return &inode->i_data.i_pages;
	default:
		return &inode->i_rwsem;
	}
}

/* A lock on that page. */
void *host_lock(__u8 *page, __u32 kind)
{
	struct pipe_inode_info *pipe = (void *)(page + 64);

	switch (kind) {
	case LOCK_NAME_NONE:
		return page + 64;
	case LOCK_NAME_MMAP:
		return &((struct mm_struct *)page)->mmap_lock;
	case LOCK_NAME_RUN_QUEUE:
		return &((struct rq *)(page + 64))->__lock;
	case LOCK_NAME_PIPE:
		pipe->rd_wait.head.next = pipe->rd_wait.head.prev = &pipe->rd_wait.head;
		pipe->wr_wait.head.next = pipe->wr_wait.head.prev = &pipe->wr_wait.head;
		return pipe;
	default:
		return host_in_inode(page, kind);
	}
}

/* The thread is of the CPU with that run queue; NULL: of one of which nothing is known. */
void host_serves(struct task_struct *task, __u8 *page, __u32 cpu)
{
	struct cfs_rq *queue = (void *)(page + 1024);
	struct rq *rq = (void *)(page + 64);

	rq->cpu = cpu;
	queue->rq = rq;
	task->se.cfs_rq = queue;
}

/* Its first descriptors are of nothing, and of that page's pipe; its call is about the second one. */
void host_reads_pipe(struct task_struct *task, __u8 *page)
{
	struct inode *inode = (void *)(page + 512);
	struct file *file = (void *)(page + 1024), **files = (void *)(page + 1040);
	struct fdtable *table = (void *)(page + 1080);
	struct files_struct *of = (void *)(page + 1120);

	inode->i_ino = 77;
	inode->i_pipe = (void *)(page + 64);
	file->f_inode = inode;
	files[1] = file;
	table->max_fds = 2;
	table->fd = files;
	of->fdt = table;
	task->files = of;
	host_calls(task, HOST_NONE, (__u64[6]){ 1 });
}

/* A sleeper's fields tell of the lock: 1 `blocked_on`, 2 to 5 `blocker` (mutex, semaphore, reader, writer), 6 a real-time mutex, 7 and 8
 * the list of those that wait to write and read an address space.
 */
void host_sleeps(struct task_struct *task, __u32 field, __u64 *lock)
{
	static struct rt_mutex_waiter___lock rt_waiters[HOST_THREADS];
	static struct rwsem_waiter___listed waiters[HOST_THREADS][2];
	struct rwsem_waiter___listed *two = waiters[task->pid];
	struct rw_semaphore___owned *sem = (void *)lock;

	task->__state = TASK_UNINTERRUPTIBLE;
	task->blocked_on = field == 1 ? (void *)lock : NULL;
	task->blocker = field >= 2 && field <= 5 ? (__u64)lock + field - 2 : 0;
	rt_waiters[task->pid].lock = (void *)lock;
	task->pi_blocked_on = field == 6 ? (void *)&rt_waiters[task->pid] : NULL;
	if (field < 7)
		return;
	/* Somebody else is first. */
	two[0].task = host_threads[task->pid + 1];
	two[1].task = task;
	two[1].type = field == 7 ? RWSEM_WAITING_FOR_WRITE : RWSEM_WAITING_FOR_READ;
	sem->wait_list.next = &two[0].list;
	two[0].list.next = &two[1].list;
	two[1].list.next = &sem->wait_list;
}
