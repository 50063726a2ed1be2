/* SPDX-License-Identifier: MIT */
/* vmlinux.h: the kernel types and UAPI constants we read, by hand; nothing else.
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

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
	BPF_FUNC_task_pt_regs = 175,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_USER_STACK = 256,
	BPF_F_MMAPABLE = 1024,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

#include "registers.h"

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

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[0];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct super_block {
	dev_t s_dev;
};

struct inode {
	umode_t i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	time64_t i_ctime_sec;
	u32 i_ctime_nsec;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct cfs_rq {
	int throttle_count;
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

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct rt_mutex_waiter;
struct mutex;
struct bio_list;

struct thread_info {
	u32 cpu;
};

struct task_io_accounting {
	u64 read_bytes;
	u64 write_bytes;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	void *stack;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	struct sched_entity se;
	struct mm_struct *mm;
	unsigned int in_iowait : 1;
	unsigned int in_memstall : 1;
	pid_t pid;
	pid_t tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
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

struct cgroup_subsys_state {
	struct cgroup *cgroup;
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

/* UAPI, not relocated: libbpf and the kernel find it by name in map values. */
struct bpf_spin_lock {
	__u32 val;
};

struct bpf_perf_event_data {
	struct user_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#endif
