/* SPDX-License-Identifier: MIT */
/* maps.bpf.h: declarations of maps. */
#ifndef __MAPS_BPF_H__
#define __MAPS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* A map of the kernel's type BPF_MAP_TYPE_`kind` with room for `most` keys. */
#define MAP(kind, name, key_type, value_type, most)   \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_##kind);    \
		__uint(max_entries, most);            \
		__type(key, key_type);                \
		__type(value, value_type);            \
	} name SEC(".maps")

/* One value per CPU, under the key 0. */
#define PER_CPU(name, value_type) MAP(PERCPU_ARRAY, name, __u32, value_type, 1)

/* A ring buffer of so many bytes. */
#define RING(name, bytes)                             \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_RINGBUF);   \
		__uint(max_entries, bytes);           \
	} name SEC(".maps")

#endif
