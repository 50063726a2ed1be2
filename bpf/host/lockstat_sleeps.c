/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_sleeps.c: lockstat's waits that last as long as their thread sleeps, on this machine: each sleep is for one eventfd. */
#define __TOKENS_BPF_H__
#define token_of(lock, task, is_current) host_token(lock)
#define gives_token() true

struct lock_id;
static _Bool host_token(struct lock_id *lock);

#include "lockstat_futexes.c"

static bool host_token(struct lock_id *lock)
{
	*lock = (struct lock_id){ .side = LOCK_USER, .class = CALL_EVENTFD, .address = 1 };
	return true;
}

/* Waits for it in a half, their ns, those on run queues, how many were open; ends of sleeps that nobody saw. */
void host_sleeps(__u32 half, __u64 sums[5])
{
	struct lock_key key = { .epoch = half };
	struct lock_sum none = {}, *sum;

	host_token(&key.lock);
	sum = bpf_map_lookup_elem(&locks, &key) ?: &none;
	sums[0] = sum->contentions;
	sums[1] = sum->total_ns;
	sums[2] = sum->run_queue_ns;
	sums[3] = sum->open;
	sums[4] = sleep_losses.unended;
}
