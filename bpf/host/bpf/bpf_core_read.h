/* SPDX-License-Identifier: MIT */
/* bpf_core_read.h: stands for libbpf's. Structs are as vmlinux.h has them, the kernel has all that there is to have but functions to call, and behind NULL
 * lie zeros.
 */
#ifndef __HOST_BPF_CORE_READ_H__
#define __HOST_BPF_CORE_READ_H__

#include <bpf/bpf_helpers.h>

#define HOST_READ1(from, a)                                      \
	({                                                        \
		static const typeof(*(from)) host_nothing;        \
		const typeof(*(from)) *host_from = (from);        \
		(host_from ? host_from : &host_nothing)->a;       \
	})
#define HOST_READ2(from, a, b) HOST_READ1(HOST_READ1(from, a), b)
#define HOST_READ3(from, a, b, c) HOST_READ1(HOST_READ2(from, a, b), c)
#define HOST_READ4(from, a, b, c, d) HOST_READ1(HOST_READ3(from, a, b, c), d)
#define HOST_READ(from, a, b, c, d, read, ...) read
#define BPF_CORE_READ(from, ...)                                                                               \
	HOST_READ(from, ##__VA_ARGS__, HOST_READ4, HOST_READ3, HOST_READ2, HOST_READ1)(from, ##__VA_ARGS__)
#define BPF_CORE_READ_BITFIELD(from, field) ((from)->field)
#define bpf_core_read(to, bytes, from) (__builtin_memcpy(to, from, bytes), 0)
#define bpf_core_field_exists(field) true
#define bpf_core_field_size(field) sizeof(field)
#define bpf_core_type_exists(type) true
#define bpf_core_type_size(type) sizeof(type)
#define bpf_core_enum_value_exists(type, value) true
#define bpf_core_enum_value(type, value) value

#endif
