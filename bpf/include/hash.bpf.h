/* SPDX-License-Identifier: MIT */
/* hash.bpf.h: hashes of words, by which user space knows what it has been told before. */
#ifndef __HASH_BPF_H__
#define __HASH_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The hash of words so far, and of one more. */
static __always_inline __u64 mixed(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

#endif
