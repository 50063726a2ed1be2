/* SPDX-License-Identifier: MIT */
/* meanwhile.bpf.h: what a thread did while another one waited for it, by its last pauses. Who will end a wait is not known when it
 * begins: so each thread remembers when it was not on a CPU, and why.
 */
#ifndef __MEANWHILE_BPF_H__
#define __MEANWHILE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "branchless.bpf.h"

/* A power of 2. */
#define PAST_PAUSES 16

/* Things that a thread does. */
enum meanwhile {
	MEANWHILE_ON_CPU = 0,
	MEANWHILE_RUN_QUEUE,
	/* Input and output, as the kernel counts it, and calls that sync. */
	MEANWHILE_DISK,
	/* A lock, another thread, input. */
	MEANWHILE_OTHERS,
	/* A nap of its own choice. */
	MEANWHILE_ASLEEP,
	/* It was longer ago than it remembers. */
	MEANWHILE_UNKNOWN,
	MEANWHILES,
};

/* The verifier wants a power of 2. */
#define MEANWHILE_ROOM 8

/* From a CPU to a CPU. */
struct pause {
	__u64 begin_ns;
	/* Made runnable; 0: it was not seen. */
	__u64 woken_ns;
	/* 0: not over. */
	__u64 end_ns;
	/* Until it was made runnable: enum meanwhile. */
	__u32 what;
	/* The lock that it waited for, by the lower half of its address, which tells it from others of these pauses; 0: none. */
	__u32 turn;
};

/* Part of the tool's `struct member`. */
struct pauses {
	/* Since when all pauses are known; 0: none are. */
	__u64 since_ns;
	/* The next one's place, when counted modulo PAST_PAUSES. */
	__u64 at;
	struct pause past[PAST_PAUSES];
};

/* The thread leaves its CPU. */
static __always_inline void pause_begins(struct pauses *pauses, enum meanwhile what, __u32 turn, __u64 now)
{
	struct pause *pause = &pauses->past[pauses->at & (PAST_PAUSES - 1)];

	/* Else the end of the last one was not seen. */
	if (!pauses->since_ns || (pause->begin_ns && !pause->end_ns))
		pauses->since_ns = now;
	pause->begin_ns = now;
	pause->woken_ns = what == MEANWHILE_RUN_QUEUE ? now : 0;
	pause->end_ns = 0;
	pause->what = what;
	pause->turn = turn;
}

static __always_inline void pause_is_woken(struct pauses *pauses)
{
	struct pause *pause = &pauses->past[pauses->at & (PAST_PAUSES - 1)];

	if (pause->begin_ns && !pause->end_ns && !pause->woken_ns)
		pause->woken_ns = bpf_ktime_get_ns();
}

/* The thread has a CPU. */
static __always_inline void pause_ends(struct pauses *pauses, __u64 now)
{
	struct pause *pause = &pauses->past[pauses->at & (PAST_PAUSES - 1)];

	/* Its beginning was not seen. */
	if (pause->end_ns || !pause->begin_ns) {
		pauses->since_ns = now;
		return;
	}
	pause->end_ns = now;
	pauses->at++;
}

/* The end of the thread's last wait for a lock; 0: it waited for none, or longer ago than it remembers. */
static __always_inline __u64 turn_begin(const struct pauses *pauses, __u32 turn)
{
	__u64 end_ns = 0;

	for (__u32 i = 0; i < PAST_PAUSES; i++) {
		const struct pause *pause = &pauses->past[i];

		end_ns = larger_of(end_ns, pause->end_ns & -is_below(pause->turn ^ turn, 1));
	}
	return end_ns & -is_below(0, turn);
}

/* Adds what the thread, which is on a CPU, did in [from, now] to `sums`. Threads take turns with a lock: its own wait for it, and all
 * before, was others' turn.
 */
static __noinline int add_meanwhile(const struct pauses *pauses, __u64 *sums, __u32 turn, __u64 from, __u64 now)
{
	const struct pause *oldest = &pauses->past[pauses->at & (PAST_PAUSES - 1)];
	/* Once all places are taken, the oldest one says since when. */
	__u64 known_from = larger_of(pauses->since_ns, oldest->begin_ns & -is_below(PAST_PAUSES - 1, pauses->at));
	__u64 paused_ns = 0;

	from = smaller_of(larger_of(from, turn_begin(pauses, turn)), now);
	if (!pauses->since_ns)
		known_from = now;
	known_from = smaller_of(larger_of(known_from, from), now);
	for (__u32 i = 0; i < PAST_PAUSES; i++) {
		const struct pause *pause = &pauses->past[i];
		__u64 begin = larger_of(pause->begin_ns, known_from);
		__u64 end = larger_of(smaller_of(pause->end_ns, now), begin);
		__u64 woken = larger_of(smaller_of(known_or_never(pause->woken_ns), end), begin);

		sums[pause->what & (MEANWHILE_ROOM - 1)] += woken - begin;
		sums[MEANWHILE_RUN_QUEUE] += end - woken;
		paused_ns += end - begin;
	}
	sums[MEANWHILE_UNKNOWN] += known_from - from;
	sums[MEANWHILE_ON_CPU] += now - known_from - paused_ns;
	return 0;
}

#endif
