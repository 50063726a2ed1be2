/* SPDX-License-Identifier: MIT */
/* rows.bpf.h: the value of a key in a hash table, made where there is none. */
#ifndef __ROWS_BPF_H__
#define __ROWS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Looks up, inserts `zero` if there is none, looks up again: another CPU may have been faster. NULL: the table is full. */
#define ROW_OF(map, key, zero)                                        \
	({                                                            \
		typeof(zero) *row = bpf_map_lookup_elem(map, key);    \
		if (!row) {                                           \
			bpf_map_update_elem(map, key, &zero, BPF_NOEXIST); \
			row = bpf_map_lookup_elem(map, key);          \
		}                                                     \
		row;                                                  \
	})

/* Adds to a table of sums, or to the counter of those that found no room there. */
#define ADD_TO_ROW(map, key, value, full)                             \
	({                                                            \
		__u64 none = 0, *sum = ROW_OF(map, key, none);        \
		if (sum)                                              \
			__sync_fetch_and_add(sum, value);             \
		else                                                  \
			__sync_fetch_and_add(&(full), 1);             \
	})

#endif
