/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* When single samples were taken, for files that keep it. Sums need none of this: it is off unless asked for.
 *
 * The includer has defined struct profile_key.
 */
#ifndef MOMENTS_BPF_H
#define MOMENTS_BPF_H

#define MOMENT_RING_BYTES (8 << 20)

const volatile __u32 keeps_moments = 0;

/* A sample on its way to user space. */
struct moment {
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u64 weight;
	__u32 cpu;
	/* Also where the key has none. */
	__u32 tid;
	struct profile_key key;
};

/* Samples whose times found the ring full. */
__u64 moments_full = 0;

RING(moments, MOMENT_RING_BYTES);

/* Ring buffer records have no map that would name their type. */
const struct moment *unused_moment __attribute__((unused));

/* Without waking anybody: the ring holds far more than what comes between two looks at it. */
static __always_inline void send_moment(const struct profile_key *key, struct task_struct *task, __u64 weight,
					__u64 now)
{
	struct moment *moment;

	if (!keeps_moments)
		return;
	moment = bpf_ringbuf_reserve(&moments, sizeof(*moment), 0);
	if (!moment) {
		__sync_fetch_and_add(&moments_full, 1);
		return;
	}
	moment->time_ns = now;
	moment->weight = weight;
	moment->cpu = bpf_get_smp_processor_id();
	moment->tid = tid_of(targets.pid_namespace, task);
	moment->key = *key;
	bpf_ringbuf_submit(moment, BPF_RB_NO_WAKEUP);
}

#endif
