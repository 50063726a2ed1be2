/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_rows.h: rows of lockstat's tables, as numbers; behind its programs. */
#ifndef __HOST_LOCKSTAT_ROWS_H__
#define __HOST_LOCKSTAT_ROWS_H__

/* The destination of a row: its numbers. */
typedef void host_row(void *to, const __u64 *numbers, __u32 count);

struct host_taking {
	__u32 half;
	host_row *row;
	void *to;
};

/* Table and lock: 5 numbers. */
#define HOST_LOCK(table, lock) table, (lock).address, (lock).class, (lock).confidence, (lock).tgid
#define HOST_ROW(taking, ...)                                                                                 \
	(taking)->row((taking)->to, (__u64[]){ __VA_ARGS__ }, sizeof((__u64[]){ __VA_ARGS__ }) / sizeof(__u64))

static bool host_takes_sum(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_key *key = of;
	const struct lock_sum *sum = value;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(0, key->lock), sum->contentions, sum->total_ns, sum->carried_ns, sum->max_ns, sum->spin_ns,
		 sum->block_ns, sum->run_queue_ns, sum->raced, sum->given_up, sum->open);
	return true;
}

static bool host_takes_bucket(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_key *key = of;

	if (key->epoch != taking->half)
		return false;
	HOST_ROW(taking, HOST_LOCK(1, key->lock), key->bucket, *(const __u64 *)value);
	return true;
}

/* Rows with another name than that of their thread, the idle task apart. */
static __u64 host_misnamed;

static void host_checks_name(__u32 tid, const __u8 comm[16])
{
	if (tid && __builtin_memcmp(host_threads[tid]->comm, comm, sizeof(host_threads[tid]->comm)))
		host_misnamed++;
}

static bool host_takes_waiter(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct waiter_key *key = of;
	const struct waiter_value *sum = value;

	if (key->epoch != taking->half)
		return false;
	host_checks_name(key->tid, key->comm);
	HOST_ROW(taking, HOST_LOCK(2, key->lock), key->tgid, key->tid, key->mode, key->kernel_stack, key->user_stack,
		 key->waker, sum->count, sum->total_ns, sum->run_queue_ns, sum->max_ns);
	return true;
}

static bool host_takes_holder(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct holder_key *key = of;
	const struct holder_value *sum = value;

	if (key->epoch != taking->half)
		return false;
	host_checks_name(key->tid, sum->comm);
	HOST_ROW(taking, HOST_LOCK(3, key->lock), key->kind, key->tgid, key->tid, key->stack, sum->waits, sum->caused_ns, sum->states[0],
		 sum->states[1], sum->states[2]);
	return true;
}

/* Takes all rows of a half: its lock, then what the functions above say. */
void host_take(__u32 half, host_row *row, void *to)
{
	struct host_taking taking = { half, row, to };

	host_visit(&locks, host_takes_sum, &taking);
	host_visit(&lock_buckets, host_takes_bucket, &taking);
	host_visit(&waiters, host_takes_waiter, &taking);
	host_visit(&holders, host_takes_holder, &taking);
}

/* Somebody who was about to raise a maximum does not go on. */
static bool host_stalls_sum(const void *key, const void *value, void *to)
{
	((struct lock_sum *)value)->raising++;
	return false;
}

void host_stall(void)
{
	host_visit(&locks, host_stalls_sum, NULL);
}

#endif
