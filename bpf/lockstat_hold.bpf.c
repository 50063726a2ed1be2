// SPDX-License-Identifier: MIT
/* lockstat_hold.bpf.c: how long threads hold glibc's locks, for `lockstat --hold`: probes on the library's functions.
 *
 * A hold begins when a function that takes the lock returns, and ends when one that gives it back is entered; a condition
 * variable gives its mutex back while it waits. Each probe is a trap, which costs microseconds: user space counts them and
 * takes the probes away when they are too many.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "targets.bpf.h"
#include "window.bpf.h"

#define MAX_HELD 65536

/* What a probed function does; the low bits are the mode. */
enum hold_cookie {
	HOLD_MUTEX = 0,
	HOLD_READ = 1,
	HOLD_WRITE = 2,
	HOLD_MODES = 3,
	/* It does not wait. */
	HOLD_TRY = 4,
};

/* Locks are told apart by address, process and mode. */
struct group_id {
	__u64 address;
	__u32 tgid;
	__u32 mode;
};

#define WHOLES 1
#include "groups.bpf.h"

struct taking {
	__u64 address;
	__u64 caller;
	__u32 cookie;
	/* In a function that takes or waits. */
	__u32 under_way;
};

/* thread → the lock that it is taking */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct taking);
} takings SEC(".maps");

struct held_key {
	__u64 address;
	__u32 tgid;
	/* 0, except for readers, of whom there may be several. */
	__u32 tid;
};

struct held {
	__u64 since_ns;
	__u64 caller;
	__u32 tid;
	__u32 mode;
	/* A reader may take the lock again. */
	__u64 depth;
};

/* Locks that somebody has */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_HELD);
	__type(key, struct held_key);
	__type(value, struct held);
} held_locks SEC(".maps");

struct hold_note {
	/* Tries that found the lock taken, and waits that ended without it. */
	__u64 tries_failed;
	__u64 timed_out;
	/* Who took it for the longest hold: a return address. */
	__u64 longest_ns;
	__u64 caller;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, struct group_id);
	__type(value, struct hold_note);
} hold_notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

struct hold_losses {
	/* No room in held_locks, or no memory. */
	__u64 held_full;
	__u64 notes_full;
	/* Given back, but not seen being taken: held since before. */
	__u64 not_seen_taken;
};

struct hold_losses hold_losses = {};

static __always_inline void count_hit(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&hits, &zero);

	if (count)
		++*count;
}

static __always_inline struct hold_note *note_of(struct group_id *id)
{
	struct hold_note *note = bpf_map_lookup_elem(&hold_notes, id), none = {};

	if (note)
		return note;
	bpf_map_update_elem(&hold_notes, id, &none, BPF_NOEXIST);
	note = bpf_map_lookup_elem(&hold_notes, id);
	if (!note)
		__sync_fetch_and_add(&hold_losses.notes_full, 1);
	return note;
}

/* pthread_mutex_t: a recursive one that its owner has more than once. Architecture: x86-64. */
static __always_inline bool is_nested(__u64 address)
{
	__u32 words[5] = {};

	if (bpf_probe_read_user(words, sizeof(words), (void *)address))
		return false;
	return (words[4] & 3) == 1 && words[1] > 1;
}

static __always_inline void count_hold(const struct held_key *key, const struct held *held, __u64 now)
{
	struct group_key group = { .id = { .address = key->address, .tgid = key->tgid, .mode = held->mode } };
	__u64 ns = now > held->since_ns ? now - held->since_ns : 0;
	struct hold_note *note = note_of(&group.id);
	struct sum *sum = find_group(&group), first = {};

	if (note && ns >= note->longest_ns) {
		note->longest_ns = ns;
		note->caller = held->caller;
	}
	if (!sum) {
		bpf_get_current_comm(first.comm, sizeof(first.comm));
		sum = make_group(&group, &first);
	}
	if (sum)
		add_to_group(&group, sum, ns);
}

static __always_inline void take(struct taking *taking, __u32 tgid, __u32 tid)
{
	__u32 mode = taking->cookie & HOLD_MODES;
	struct held_key key = { .address = taking->address, .tgid = tgid, .tid = mode == HOLD_READ ? tid : 0 };
	struct held held = { .caller = taking->caller, .tid = tid, .mode = mode, .depth = 1 }, *again;

	if (mode == HOLD_MUTEX && is_nested(taking->address))
		return;
	if (mode == HOLD_READ) {
		again = bpf_map_lookup_elem(&held_locks, &key);
		if (again) {
			again->depth++;
			return;
		}
	}
	held.since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&held_locks, &key, &held, BPF_ANY))
		__sync_fetch_and_add(&hold_losses.held_full, 1);
}

static __always_inline void give_back(__u64 address, bool is_rwlock, __u64 now)
{
	struct task_struct *task = current_task();
	struct held_key key = { .address = address, .tgid = tgid_of(targets.pid_namespace, task) };
	__u32 tid = tid_of(targets.pid_namespace, task);
	struct held *held = bpf_map_lookup_elem(&held_locks, &key);

	if (!is_rwlock && is_nested(address))
		return;
	if (!held && is_rwlock) {
		key.tid = tid;
		held = bpf_map_lookup_elem(&held_locks, &key);
		if (held && held->depth > 1) {
			held->depth--;
			return;
		}
	}
	if (!held) {
		__sync_fetch_and_add(&hold_losses.not_seen_taken, 1);
		return;
	}
	count_hold(&key, held, now);
	bpf_map_delete_elem(&held_locks, &key);
}

static __always_inline void begin(struct pt_regs *ctx, __u64 address)
{
	struct taking *taking, none = {};

	taking = bpf_task_storage_get(&takings, current_task(), &none, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!taking) {
		__sync_fetch_and_add(&hold_losses.held_full, 1);
		return;
	}
	taking->address = address;
	taking->cookie = bpf_get_attach_cookie(ctx);
	taking->under_way = 1;
	taking->caller = 0;
	/* At a function's first instruction the return address is on top of the stack. */
	bpf_probe_read_user(&taking->caller, sizeof(taking->caller), (void *)PT_REGS_SP(ctx));
}

/* Every trap counts for the cost, also outside the window. */
static __always_inline bool is_counting(__u64 now)
{
	count_hit();
	return in_window(now);
}

static __always_inline int enter_lock(struct pt_regs *ctx)
{
	if (is_counting(bpf_ktime_get_ns()))
		begin(ctx, PT_REGS_PARM1(ctx));
	return 0;
}

#define EOWNERDEAD 130
#define EBUSY 16

static __always_inline void count_failure(const struct taking *taking, __u32 tgid, int result)
{
	struct group_id id = { .address = taking->address, .tgid = tgid, .mode = taking->cookie & HOLD_MODES };
	struct hold_note *note = note_of(&id);

	if (!note)
		return;
	if (taking->cookie & HOLD_TRY && result == EBUSY)
		__sync_fetch_and_add(&note->tries_failed, 1);
	else
		__sync_fetch_and_add(&note->timed_out, 1);
}

/* `has_it`: whatever the function says. */
static __always_inline int leave(struct pt_regs *ctx, bool has_it)
{
	struct task_struct *task = current_task();
	struct taking *taking;
	int result = PT_REGS_RC(ctx);
	__u32 tgid;

	if (!is_counting(bpf_ktime_get_ns()))
		return 0;
	taking = bpf_task_storage_get(&takings, task, NULL, 0);
	if (!taking || !taking->under_way)
		return 0;
	taking->under_way = 0;
	tgid = tgid_of(targets.pid_namespace, task);
	if (has_it || !result || result == EOWNERDEAD)
		take(taking, tgid, tid_of(targets.pid_namespace, task));
	else
		count_failure(taking, tgid, result);
	return 0;
}

static __always_inline int enter_unlock(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	if (is_counting(now))
		give_back(PT_REGS_PARM1(ctx), bpf_get_attach_cookie(ctx) != HOLD_MUTEX, now);
	return 0;
}

/* pthread_cond_wait(cond, mutex): waits without the mutex, and comes back with it. */
static __always_inline int enter_wait(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	if (is_counting(now)) {
		give_back(PT_REGS_PARM2(ctx), false, now);
		begin(ctx, PT_REGS_PARM2(ctx));
	}
	return 0;
}

SEC("uprobe")
int lock_entered(struct pt_regs *ctx)
{
	return enter_lock(ctx);
}

SEC("uprobe")
int lock_returned(struct pt_regs *ctx)
{
	return leave(ctx, false);
}

SEC("uprobe")
int unlock_entered(struct pt_regs *ctx)
{
	return enter_unlock(ctx);
}

SEC("uprobe")
int wait_entered(struct pt_regs *ctx)
{
	return enter_wait(ctx);
}

SEC("uprobe")
int wait_returned(struct pt_regs *ctx)
{
	return leave(ctx, true);
}

/* The same for one link to many functions (6.6), which is put in place and taken away in one go. */
SEC("uprobe.multi")
int lock_entered_multi(struct pt_regs *ctx)
{
	return enter_lock(ctx);
}

SEC("uprobe.multi")
int lock_returned_multi(struct pt_regs *ctx)
{
	return leave(ctx, false);
}

SEC("uprobe.multi")
int unlock_entered_multi(struct pt_regs *ctx)
{
	return enter_unlock(ctx);
}

SEC("uprobe.multi")
int wait_entered_multi(struct pt_regs *ctx)
{
	return enter_wait(ctx);
}

SEC("uprobe.multi")
int wait_returned_multi(struct pt_regs *ctx)
{
	return leave(ctx, true);
}

/* Processes that targets forked, with breakpoints in the memory that they inherited: user space takes them out. Those that share the
 * memory until they execute a program have no breakpoints of their own.
 */
__u64 forks = 0;

SEC("tp_btf/sched_process_fork")
int BPF_PROG(target_forks, struct task_struct *parent, struct task_struct *child)
{
	if (is_leader(child) && is_wanted_tgid(parent) && BPF_CORE_READ(child, mm) != BPF_CORE_READ(parent, mm))
		__sync_fetch_and_add(&forks, 1);
	return 0;
}

/* Only there to be taken away again. */
SEC("uprobe.multi")
int nothing_multi(struct pt_regs *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
