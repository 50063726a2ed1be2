/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* kernel_layout.h: stands for vmlinux.h where flavours of a struct meet the struct itself, and where a field's offset matters.
 *
 * Nothing relocates on this machine: a struct has to lie as its flavours do, and what has an offset in the kernel has one here.
 */
#ifndef __HOST_KERNEL_LAYOUT_H__
#define __HOST_KERNEL_LAYOUT_H__

/* mmap_lock is mm_struct___locked's first field; a run queue's lock lies behind something. */
#define mmap_base mmap_base_at[0]
#define start_stack start_stack_at[0]
#define __lock before; raw_spinlock_t __lock
/* rw_semaphore___owned has its owner behind a count. */
#define rw_semaphore host_rw_semaphore
#include "vmlinux.h"
#undef mmap_base
#undef start_stack
#undef __lock
#undef rw_semaphore
#include "lacks.h"

struct rw_semaphore {
	u32 count;
	raw_spinlock_t wait_lock;
	atomic64_t owner;
};

_Static_assert(sizeof(struct rw_semaphore) == sizeof(struct host_rw_semaphore), "others have it inside");

/* The offset of a field behind a pointer of one of these names, which is none then. */
#define bpf_core_field_offset(...) HOST_OFFSET(__VA_ARGS__, , )
#define HOST_OFFSET(a, b, ...)                                                         \
	({                                                                             \
		struct rq *rq = NULL;                                                  \
		struct mm_struct *mm = NULL;                                           \
		struct inode *inode = NULL;                                            \
		struct dentry *dentry = NULL;                                          \
		struct rw_semaphore *sem = NULL;                                       \
		struct address_space *pages = NULL;                                    \
		struct pipe_inode_info *pipe = NULL;                                   \
		struct dentry___named_union *named = NULL;                             \
		struct rwsem_waiter___listed *waiter = NULL;                           \
		(void)rq, (void)mm, (void)inode, (void)dentry, (void)sem;              \
		(void)pages, (void)pipe, (void)named, (void)waiter;                    \
		(__u64)&(a);                                                           \
	})

/* Reads of what is not there give zeros. */
#define HOST_IS_THERE(from) ((__u64)(from) >= 4096)
#define HOST_SAFE1(from, a)                                                            \
	({                                                                             \
		typeof(&*(from)) host_from = (from);                                   \
		HOST_IS_THERE(host_from) ? host_from->a : (typeof(host_from->a))0;     \
	})
#define HOST_SAFE2(from, a, b) HOST_SAFE1(HOST_SAFE1(from, a), b)
#define HOST_SAFE3(from, a, b, c) HOST_SAFE1(HOST_SAFE2(from, a, b), c)
#define HOST_SAFE4(from, a, b, c, d) HOST_SAFE1(HOST_SAFE3(from, a, b, c), d)
#undef BPF_CORE_READ
#define BPF_CORE_READ(from, ...)                                                               \
	HOST_READ(from, ##__VA_ARGS__, HOST_SAFE4, HOST_SAFE3, HOST_SAFE2, HOST_SAFE1)(from, ##__VA_ARGS__)
#undef bpf_core_read
#define bpf_core_read(to, bytes, from)                                                         \
	(HOST_IS_THERE(from) ? (__builtin_memcpy(to, from, bytes), 0) : (__builtin_memset(to, 0, bytes), -14))
#undef bpf_probe_read_kernel_str
#define bpf_probe_read_kernel_str(to, bytes, from)                                             \
	(HOST_IS_THERE(from) ? (__builtin_strncpy((char *)(to), (const char *)(from), (bytes) - 1), 0) : -14)
#define BPF_CORE_READ_INTO(to, from, a, b) bpf_core_read(to, sizeof(*(to)), &HOST_SAFE1(from, a)->b)
#define BPF_CORE_READ_STR_INTO(to, from, a, b) bpf_probe_read_kernel_str(to, sizeof(*(to)), &HOST_SAFE1(from, a)->b)

#endif
