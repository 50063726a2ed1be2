/* SPDX-License-Identifier: MIT */
/* bpf_helpers.h: stands for libbpf's, where BPF programs are compiled for this machine instead of for the kernel's. */
#ifndef __HOST_BPF_HELPERS_H__
#define __HOST_BPF_HELPERS_H__

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

#define SEC(name) __attribute__((used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))
#define __ksym
#define bpf_ksym_exists(symbol) false
#define barrier() __asm__ volatile("" : : : "memory")
#define barrier_var(variable) __asm__ volatile("" : "+r"(variable))

/* Shape of a map, from its definition. */
struct host_shape {
	bool is_array;
	bool is_per_cpu;
	/* Its keys are tasks. */
	bool is_of_tasks;
	/* A new key takes another's place in a full table. */
	bool makes_room;
	__u32 key_bytes;
	__u32 value_bytes;
	/* 0: any number. */
	__u32 max_entries;
};

#define HOST_IS(map, kind) (sizeof(*(map)->type) / sizeof(int) == BPF_MAP_TYPE_##kind)
#define HOST_SHAPE(map, keys, entries)                                                            \
	(&(const struct host_shape){                                                               \
		.is_array = HOST_IS(map, ARRAY) || HOST_IS(map, PERCPU_ARRAY),                     \
		.is_per_cpu = HOST_IS(map, PERCPU_HASH) || HOST_IS(map, PERCPU_ARRAY),             \
		.is_of_tasks = HOST_IS(map, TASK_STORAGE),                                         \
		.makes_room = HOST_IS(map, LRU_HASH),                                              \
		.key_bytes = keys,                                                                 \
		.value_bytes = sizeof(*(map)->value),                                              \
		.max_entries = entries,                                                            \
	})
#define HOST_TABLE(map) HOST_SHAPE(map, sizeof(*(map)->key), sizeof(*(map)->max_entries) / sizeof(int))
#define HOST_STORAGE(map) HOST_SHAPE(map, sizeof(void *), 0)

void *host_lookup(const void *map, const struct host_shape *shape, const void *key);
long host_update(const void *map, const struct host_shape *shape, const void *key, const void *value, __u64 flags);
long host_delete(const void *map, const struct host_shape *shape, const void *key);
void *host_storage(const void *map, const struct host_shape *shape, const void *task, __u64 flags);
void *host_reserve(__u64 bytes);
void host_submit(void *record);
__u64 host_now(void);
__u32 host_cpu(void);
void *host_current(void);
void *host_registers(void);
long host_write(const void *record, __u32 bytes);

static inline long host_copy_kernel(void *to, __u32 bytes, const void *from)
{
	if (from)
		__builtin_memcpy(to, from, bytes);
	else
		__builtin_memset(to, 0, bytes);
	return from ? 0 : -14;
}

#define bpf_map_lookup_elem(map, key) host_lookup(map, HOST_TABLE(map), key)
#define bpf_map_update_elem(map, key, value, flags) host_update(map, HOST_TABLE(map), key, value, flags)
#define bpf_map_delete_elem(map, key) host_delete(map, HOST_TABLE(map), key)
#define bpf_task_storage_get(map, task, value, flags) host_storage(map, HOST_STORAGE(map), task, flags)
#define bpf_task_storage_delete(map, task) host_delete(map, HOST_STORAGE(map), &(const void *){ task })
#define bpf_ringbuf_reserve(map, bytes, flags) host_reserve(bytes)
#define bpf_ringbuf_submit(record, flags) host_submit(record)
#define bpf_ktime_get_ns() host_now()
#define bpf_get_smp_processor_id() host_cpu()
#define bpf_get_current_task() ((__u64)host_current())
#define bpf_get_current_task_btf() ((struct task_struct *)host_current())
#define bpf_seq_write(seq, bytes, length) host_write(bytes, length)
#define bpf_task_pt_regs(task) host_registers()
#define bpf_probe_read_kernel(to, bytes, from) host_copy_kernel(to, bytes, from)
#define bpf_probe_read_kernel_str(to, bytes, from) (__builtin_strncpy(to, from, (bytes) - 1), 0)

#endif
