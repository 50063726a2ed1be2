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
/* Calls `takes` for each entry of a map, with the values of all CPUs, and removes those for which it returns true. */
void host_visit(const void *map, bool (*takes)(const void *key, const void *value, void *to), void *to);
/* A value in a map, of the present CPU; NULL: there is none. */
const void *host_entry(const void *map, const void *key);
/* Adds as many words of a map's value on all CPUs to others. */
void host_add_up(const void *map, const void *key, __u64 *to, __u32 words);
/* Calls `entry` for each entry of all maps but those of tasks: map's name, key and values. Empty ones of arrays are none. */
void host_dump(void (*entry)(void *to, const char *map, const void *bytes, __u64 length), void *to);
/* To be called before the object is let go. */
void host_free(void);

/* <bpf/bpf_tracing.h> is not for threads that are made up. */
#define PT_REGS_SP(regs) ((regs)->sp)

#endif
