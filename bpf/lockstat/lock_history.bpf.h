/* SPDX-License-Identifier: MIT */
/* lock_history.bpf.h: a thread's last waits for locks, part of the tool's `struct member`; see lock_chains.bpf.h. */
#ifndef __LOCK_HISTORY_BPF_H__
#define __LOCK_HISTORY_BPF_H__

#include "lock_tables.bpf.h"

/* A power of 2. */
#define PAST_WAITS 4

struct past_wait {
	/* 0 while the rest is written. */
	__u64 begin_ns;
	/* Someone ended it, and the thread had yet to run again. */
	__u64 released_ns;
	__u64 end_ns;
	struct lock_id lock;
	__u32 holder_tgid;
	/* 0: nobody knows. */
	__u32 holder_tid;
	__u8 holder_comm[16];
	/* What its holder waited for meanwhile: id in `chains`; 0: nothing. */
	__u64 next;
	/* enum holder_kind */
	__u32 kind;
	__u32 pad;
};

struct lock_history {
	__u32 at;
	__u32 pad;
	struct past_wait waits[PAST_WAITS];
};

#endif
