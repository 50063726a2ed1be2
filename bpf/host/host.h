/* SPDX-License-Identifier: MIT */
/* host.h: what host.c has for those who run programs. */
#ifndef __HOST_H__
#define __HOST_H__

#include <bpf/bpf_helpers.h>

#define HOST_CPUS 8

/* Clock, CPU and current task of what runs next. */
void host_set(__u64 clock, __u32 cpu, void *task);
/* Constants that a loader would set. */
void host_poke(const volatile void *to, const void *from, __u64 bytes);
void *host_make_task(__u64 bytes);
void host_free_task(void *task);
/* The record that an iterator has written last, once; NULL: none. */
const void *host_written(void);
/* Tables take no new keys from now on. */
void host_fill(void);
/* Calls `takes` for each entry of a map, and removes those for which it returns true. */
void host_visit(const void *map, bool (*takes)(const void *key, const void *value, void *to), void *to);
/* To be called before the object is let go. */
void host_free(void);

#endif
