/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat.c: runqlat's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include "../runqlat.bpf.c"
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
