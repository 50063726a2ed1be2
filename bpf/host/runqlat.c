/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat.c: runqlat's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include "../runqlat/runqlat.bpf.c"
#include "threads.h"

void host_begin(__u64 now)
{
	struct runqlat_config all = { .causes = 1 << CAUSE_WAKEUP | 1 << CAUSE_PREEMPTED };

	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

/* Counted waits and their sum, of the whole machine. */
void host_counted(__u64 *count, __u64 *sum_ns)
{
	__u32 whole = 0;

	*count = *sum_ns = 0;
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		struct hist *hist;

		host_set(0, cpu, NULL);
		hist = bpf_map_lookup_elem(&wholes, &whole);
		*count += hist->sum.count;
		*sum_ns += hist->sum.total_ns;
	}
}

/* Waits that a thread has caused, and ns of them. */
void host_caused(__u32 tid, __u64 *waits, __u64 *ns)
{
	struct culprit_key key = { .tid = tid };
	struct culprit *culprit = bpf_map_lookup_elem(&culprits, &key);

	*waits = culprit ? culprit->waits : 0;
	*ns = culprit ? culprit->caused_ns : 0;
}

__u64 host_unseen(void)
{
	return losses.unseen;
}

/* Waits are counted for each thread. */
void host_by_thread(void)
{
	struct runqlat_config each = config;

	each.group_by = BY_THREAD;
	host_poke(&config, &each, sizeof(each));
}

void host_end(__u64 now)
{
	window_end_ns = now;
}

/* A thread's counted waits. */
void host_thread_counted(__u32 tid, __u64 *count, __u64 *sum_ns, __u64 *max_ns)
{
	struct group_key key = { .id.id = tid };

	*count = *sum_ns = *max_ns = 0;
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		struct sum *sum;

		host_set(0, cpu, NULL);
		sum = bpf_map_lookup_elem(&groups, &key);
		if (!sum)
			continue;
		*count += sum->count;
		*sum_ns += sum->total_ns;
		if (sum->max_ns > *max_ns)
			*max_ns = sum->max_ns;
	}
}

/* Counted waits of a thread in one bucket. */
__u64 host_bucket(__u32 tid, __u32 bucket)
{
	struct group_key key = { .id.id = tid, .bucket = bucket };
	__u64 *count = bpf_map_lookup_elem(&buckets, &key);

	return count ? *count : 0;
}

void host_totals(__u64 *wakeups, __u64 *switches, __u64 *under_way_at_start)
{
	__u32 zero = 0;

	*wakeups = *switches = *under_way_at_start = 0;
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		struct runqlat_totals *sums;

		host_set(0, cpu, NULL);
		sums = bpf_map_lookup_elem(&totals, &zero);
		*wakeups += sums->wakeups;
		*switches += sums->switches;
		*under_way_at_start += sums->under_way_at_start;
	}
}

/* For how long a thread had waited when the window closed. */
__u64 host_waiting(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct open_wait *open;

	list_waiting(&context);
	open = host_written();
	return open ? open->wait_ns : 0;
}
