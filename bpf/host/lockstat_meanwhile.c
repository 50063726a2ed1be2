/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_meanwhile.c: what lockstat's threads remember of what they did, on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include "../lockstat/meanwhile.bpf.h"

static struct pauses host_pauses;

void host_begin(void)
{
	host_pauses = (struct pauses){};
}

void host_leaves(__u64 now, __u64 what, __u64 turn)
{
	pause_begins(&host_pauses, what, turn, now);
}

void host_is_woken(__u64 now)
{
	host_set(now, 0, NULL);
	pause_is_woken(&host_pauses);
}

void host_runs(__u64 now)
{
	pause_ends(&host_pauses, now);
}

__u64 host_meanwhile(__u64 turn, __u64 from, __u64 now, __u64 what)
{
	__u64 sums[MEANWHILE_ROOM] = {};

	add_meanwhile(&host_pauses, sums, turn, from, now);
	return sums[what];
}
