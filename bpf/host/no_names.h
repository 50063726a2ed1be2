/* SPDX-License-Identifier: MIT */
/* no_names.h: stands for what lockstat asks of names and owners of kernel locks, where there are none. */
#ifndef __HOST_NO_NAMES_H__
#define __HOST_NO_NAMES_H__

#define __LOCK_NAMES_BPF_H__
#define __KERNEL_OWNER_BPF_H__
#define __KERNEL_SLEEPERS_BPF_H__

struct kernel_lock {
	__u64 owner;
};

struct rt_mutex_base___owned {
	__u64 owner;
};

#include "waits.bpf.h"

#define bpf_probe_read_user(to, bytes, from) (__builtin_memcpy(to, from, bytes), 0)
#define claim_scratch(slot) scratch_at(*(slot) = 0)
#define release_scratch(scratch) ((void)(scratch))
#define bpf_get_prandom_u32() 0
#define describe_semaphore(lock, address) ((void)(lock))
#define is_own_mmap_lock(task, lock) false
#define is_lock_named(lock) true
#define name_lock(wait, task) ((void)(wait))
#define note_run_queue(task) ((void)(task))
#define find_kernel_waits(member, task) ((void)(member))

#endif
