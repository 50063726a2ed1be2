/* SPDX-License-Identifier: MIT */
/* vmlinux.h: the kernel types that we read, by hand; nothing else. What does not vary: bpf_uapi.h.
 *
 * Every struct holds just the fields used; CO-RE finds their offsets in the running kernel's BTF by name. A field's
 * type must match the kernel's: check new ones with `bpftool btf dump file /sys/kernel/btf/vmlinux format c`.
 * Variants of older kernels live in compat.bpf.h.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef int pid_t;
typedef __u32 dev_t;
typedef __s64 time64_t;
typedef unsigned short umode_t;
typedef _Bool bool;
enum { false = 0, true = 1 };

#define NULL ((void *)0)

/* include/linux/sched.h: a kernel thread. */
#define PF_KTHREAD 0x00200000
/* Forked, and nothing executed since. */
#define PF_FORKNOEXEC 0x00000040
/* On its way out. */
#define PF_EXITING 0x00000004

#include "registers.h"
#include "bpf_uapi.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

#include "vmlinux_cgroups.h"

typedef struct {
	s64 counter;
} atomic64_t;

struct raw_spinlock {
	unsigned int raw_lock;
};

typedef struct raw_spinlock raw_spinlock_t;

struct spinlock {
	unsigned int rlock;
};

typedef struct spinlock spinlock_t;

struct mutex {
	atomic64_t owner;
};

struct rw_semaphore {
	atomic64_t owner;
	raw_spinlock_t wait_lock;
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct wait_queue_head {
	struct list_head head;
};

typedef struct wait_queue_head wait_queue_head_t;

struct pipe_inode_info {
	struct mutex mutex;
	wait_queue_head_t rd_wait;
	wait_queue_head_t wr_wait;
};

struct xarray {
	spinlock_t xa_lock;
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
	struct rw_semaphore invalidate_lock;
	struct rw_semaphore i_mmap_rwsem;
};

struct super_block {
	dev_t s_dev;
	unsigned long s_magic;
	char s_id[32];
};

struct qstr {
	u32 hash;
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
	struct hlist_node d_alias;
};

/* Before 7.2 the union with d_alias had a name. */
struct dentry___named_union {
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct inode {
	umode_t i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_generation;
	time64_t i_ctime_sec;
	u32 i_ctime_nsec;
	spinlock_t i_lock;
	struct rw_semaphore i_rwsem;
	struct hlist_head i_dentry;
	struct address_space i_data;
	struct pipe_inode_info *i_pipe;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

#include "vmlinux_sockets.h"
#include "vmlinux_epoll.h"

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct rq {
	raw_spinlock_t __lock;
	int cpu;
};

struct cfs_rq {
	int throttle_count;
	u64 throttled_clock_pelt_time;
	struct rq *rq;
};

struct sched_entity {
	unsigned char sched_delayed;
	struct cfs_rq *cfs_rq;
};

typedef struct {
	void *vdso;
} mm_context_t;

/* As sizes: what they point to is not looked at through them. */
struct maple_range_64 {
	void *parent;
	unsigned long pivot[15];
	void *slot[16];
};

struct maple_arange_64 {
	void *parent;
	unsigned long pivot[9];
	void *slot[10];
};

struct maple_tree {
	void *ma_root;
};

struct mm_struct {
	unsigned long mmap_base;
	unsigned long start_stack;
	struct rw_semaphore mmap_lock;
	mm_context_t context;
	struct maple_tree mm_mt;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct signal_struct {
	atomic_t live;
	int nr_threads;
};

struct kmem_cache {
	int refcount;
	const char *name;
};

struct rt_mutex_waiter;
struct bio_list;

struct thread_info {
	long unsigned int flags;
	/* Architecture: x86-64. */
	u32 status;
	u32 cpu;
};

struct task_io_accounting {
	u64 read_bytes;
	u64 write_bytes;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long last_queued;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	void *stack;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	int prio;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct mm_struct *mm;
	unsigned int in_iowait : 1;
	unsigned int in_memstall : 1;
	pid_t pid;
	pid_t tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct sched_info sched_info;
	unsigned long nvcsw;
	unsigned long nivcsw;
	u64 start_time;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct bio_list *bio_list;
	struct task_io_accounting ioac;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	struct rt_mutex_waiter *pi_blocked_on;
	struct mutex *blocked_on;
	unsigned long blocker;
	struct css_set *cgroups;
	bool throttled;
	struct thread_struct thread;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct block_device {
	dev_t bd_dev;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	struct blkcg_gq *bi_blkg;
	void *bi_private;
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
};

struct request_queue {
	unsigned long queue_flags;
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int rq_flags;
	unsigned int __data_len;
	u64 __sector;
	struct bio *bio;
	struct block_device *part;
	u64 alloc_time_ns;
	u64 start_time_ns;
	u64 io_start_time_ns;
};

/* include/linux/blk_types.h */
enum req_op {
	REQ_OP_ZONE_APPEND = 7,
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
