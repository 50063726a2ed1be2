/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* runqlat.c: runqlat's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"

static void *host_slow_reserve(__u64 bytes);
static void host_slow_keep(void *slow);

#undef bpf_ringbuf_reserve
#undef bpf_ringbuf_submit
#define bpf_ringbuf_reserve(map, bytes, flags) host_slow_reserve(bytes)
#define bpf_ringbuf_submit(slow, flags) host_slow_keep(slow)

#include <bpf/bpf_core_read.h>

/* The kernel throttles tasks by themselves; else queues, of which threads have none unless a test gives them some. */
static bool host_throttles_tasks;
#undef bpf_core_field_exists
#define bpf_core_field_exists(field) \
	((void)sizeof(field), host_throttles_tasks || __builtin_strcmp(#field, "task->throttled"))
#include "../runqlat/runqlat.bpf.c"
#include "threads.h"
#include "runqlat_threads.h"
#include "runqlat_quotas.h"
#include "targets.h"

#define HOST_SLOW_WAITS (1 << 16)

/* Slow waits that are sent, oldest first. */
static void *host_slow_waits[HOST_SLOW_WAITS];
static __u32 host_slow_first, host_slow_end;
static bool host_slow_is_full;

static void *host_slow_reserve(__u64 bytes)
{
	return host_slow_is_full || host_slow_end == HOST_SLOW_WAITS ? NULL : host_reserve(bytes);
}

static void host_slow_keep(void *slow)
{
	host_slow_waits[host_slow_end++] = slow;
}

void host_begin(__u64 now)
{
	struct runqlat_config all = { .causes = 1 << CAUSE_WAKEUP | 1 << CAUSE_PREEMPTED };

	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

/* Options that the user gives. */
void host_ask(__u32 group_by, __u32 causes, __u64 slower_ns)
{
	struct runqlat_config asked = { .group_by = group_by, .causes = causes, .slower_ns = slower_ns };

	host_poke(&config, &asked, sizeof(asked));
}

/* The next window goes by what the last one has learnt of the clock. */
void host_next_clock(void)
{
	if (clock_offset)
		last_clock_offset = clock_offset;
	clock_offset = clock_samples = 0;
}

static void host_forget_whole(__u32 half)
{
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		struct hist *hist;

		host_set(0, cpu, NULL);
		hist = bpf_map_lookup_elem(&wholes, &half);
		__builtin_memset(hist, 0, sizeof(*hist));
	}
}

/* Another window begins, in the other half, whose counts user space has taken. */
void host_begin_next(__u64 now)
{
	epoch = !epoch;
	host_forget_whole(epoch);
	window_end_ns = 0;
	window_start_ns = now;
}

/* Waits of a task that began while no program was attached. */
void host_find_wait(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	open_waits(&context);
}

/* The ring of slow waits has no room left. */
void host_fill_slow_waits(void)
{
	host_slow_is_full = true;
}

static void host_add(const struct sum *from, struct sum *to)
{
	if (!from)
		return;
	to->count += from->count;
	to->total_ns += from->total_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
	/* Only the CPU that made the group has its name. */
	if (from->comm[0])
		__builtin_memcpy(to->comm, from->comm, sizeof(to->comm));
}

/* A group's counted waits in one half. */
void host_group(__u64 id, __u32 half, struct sum *to)
{
	struct group_key key = { .id.id = id, .epoch = half };

	__builtin_memset(to, 0, sizeof(*to));
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		host_set(0, cpu, NULL);
		host_add(bpf_map_lookup_elem(&groups, &key), to);
	}
}

/* Counted waits of the whole machine in one half. */
void host_whole(__u32 half, struct sum *to)
{
	__builtin_memset(to, 0, sizeof(*to));
	for (__u32 cpu = 0; cpu < HOST_CPUS; cpu++) {
		host_set(0, cpu, NULL);
		host_add(bpf_map_lookup_elem(&wholes, &half), to);
	}
}

/* The oldest slow wait, once. False: there is none left. */
bool host_take_slow(struct slow_wait *to)
{
	if (host_slow_first == host_slow_end)
		return false;
	*to = *(struct slow_wait *)host_slow_waits[host_slow_first];
	host_submit(host_slow_waits[host_slow_first++]);
	return true;
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

__u32 host_bucket_of(__u64 ns)
{
	return hist_bucket(ns);
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

/* The window has ended. */
void host_ask_sleeper(struct task_struct *task)
{
	struct bpf_iter__task context = { .task = task };

	ask_sleepers(&context);
}

/* It was ready before anything was seen of it, and has not run since. */
__u32 host_never_ran(struct task_struct *task)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };

	list_ready(&context);
	return host_written() != NULL;
}

/* A target is as one that is found when tracing begins. */
void host_found(struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member)
		return;
	__builtin_memset(member, 0, sizeof(*member));
	member->unseen = 1;
	member->switches = switches_of(task);
}
