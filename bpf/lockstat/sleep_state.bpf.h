/* SPDX-License-Identifier: MIT */
/* sleep_state.bpf.h: a wait that lasts as long as its thread sleeps, part of the tool's `struct member`. */
#ifndef __SLEEP_STATE_BPF_H__
#define __SLEEP_STATE_BPF_H__

#include "backend_state.bpf.h"
#include "futex_state.bpf.h"
#include "lock_tables.bpf.h"

struct sleep {
	/* Time when the thread was made runnable. */
	__u64 runnable_ns;
	/* Begins when it leaves its CPU and ends when it is back. */
	struct lock_wait wait;
	/* enum futex_phase: never FUTEX_RUNNING. */
	__u8 phase;
	__u8 pad[7];
};

/* The lock is to be identified then. */
static __always_inline void begin_sleep(struct sleep *sleep, __u64 now)
{
	__builtin_memset(&sleep->wait, 0, sizeof(sleep->wait));
	sleep->wait.begin_ns = sleep->wait.part_ns = now;
	sleep->runnable_ns = 0;
	sleep->phase = FUTEX_BLOCKED;
}

/* `turn` of struct pause: a token's. Several locks of a server have one event. */
static __always_inline __u32 sleep_turn(const struct sleep *sleep)
{
	return sleep->wait.lock.class == LOCK_OF_SERVER ? 0 : sleep->wait.lock.address;
}

#endif
