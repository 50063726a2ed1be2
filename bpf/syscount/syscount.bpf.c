/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* syscount: which system calls take the time, and fail.
 *
 * A call begins at sys_enter and ends at sys_exit, which the kernel's own tracers time, too. Its latency is in the interval in which it
 * returns; the time that passes in it is in the interval in which it passes, so that calls that are open at an edge lose nothing.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "maps.bpf.h"

/* io_uring's workers, which make no calls, as kernel threads make none. */
#define PF_IO_WORKER 0x00000010

/* Per task: the call that it is in. */
struct member {
	/* 0: it is in none. */
	__u64 entered_ns;
	/* Up to where the iterator has counted it. */
	__u64 counted_ns;
	/* Times that it had slept when it entered; UNSEEN: it may have since. */
	__u64 sleeps;
	/* Number, and COMPAT_CALL; UNSEEN: whatever it may be in began before it became a target. */
	__u32 call;
	/* Forked, and not yet back from the call that made it, which is its parent's. */
	__u32 is_new;
};

#define UNSEEN 0xffffffffU
#define CALL_NUMBER 0xffff
/* Calls of 32-bit programs have numbers of their own. */
#define COMPAT_CALL (1U << 31)
/* It has slept until somebody else did something to a pipe, socket, terminal or the like. */
#define PEER_CALL (1U << 30)

/* The calls of a row. */
struct group_id {
	/* Process or thread; 0 where rows are not of one. */
	__u32 id;
	__u32 call;
	__u8 comm[16];
};

#define WHOLES 1

#include "members.bpf.h"
#include "groups.bpf.h"
#include "waits.bpf.h"

enum group_by {
	BY_PROCESS = 0,
	BY_THREAD,
	BY_NAME,
	BY_CALL,
};

struct syscount_config {
	enum group_by group_by;
	/* Only calls that fail. */
	__u32 failures;
	/* Only those that fail with this error; 0: any. */
	__u32 error;
};

const volatile struct syscount_config config = {};

/* Stands where a `group_key` has its bucket: an error's number, or what is kept of calls at the edges of an interval. */
enum sum_kind {
	MAX_ERROR = 4095,
	/* Calls that were open at its end. */
	SUM_OPEN,
	/* ns of these in it. */
	SUM_OPEN_NS,
	/* ns of calls that returned in it, before it. */
	SUM_EARLIER_NS,
};

/* User space needs it; no map names it. */
const enum sum_kind *unused_sum_kind __attribute__((unused));

/* (group, error's number or enum sum_kind) → count or ns */
MAP(HASH, sums, struct group_key, __u64, 4 * MAX_GROUPS);

struct syscount_losses {
	/* Errors, and times of open calls. */
	__u64 sums_full;
	__u64 negative;
};

struct syscount_losses losses = {};

struct syscount_totals {
	__u64 calls;
	/* Those of them that began before the window. */
	__u64 under_way_at_start;
	/* Groups made. */
	__u64 groups;
};

PER_CPU(totals, struct syscount_totals);

/* End of the interval before, or of the last one; 0: there is none yet. */
__u64 edge_ns = 0;
/* The half of the interval that ends there. */
__u32 open_epoch = 0;
/* User space has begun to read it: what comes to it now would be in a later interval. */
__u32 is_open_taken = 0;

static __always_inline void member_joined(struct member *member, struct task_struct *task, enum member_origin origin)
{
	member->is_new = origin == MEMBER_FORKED;
	if (member->is_new || BPF_CORE_READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return;
	member->call = UNSEEN;
	member->sleeps = UNSEEN;
	member->entered_ns = bpf_ktime_get_ns();
}

static __always_inline void member_left(struct member *member, struct task_struct *task)
{
}

/* The call whose number the saved registers have; UNSEEN: none. */
static __always_inline __u32 call_of(struct task_struct *task, __u64 number)
{
	if ((__s32)number < 0)
		return UNSEEN;
	return (number & CALL_NUMBER) | (is_compat_call(task) ? COMPAT_CALL : 0);
}

/* S_IFMT >> 12 of what has somebody at its other end: none (eventfd, timerfd and such), pipes, terminals, sockets. */
#define PEER_TYPES (1 << 0 | 1 << 1 | 1 << 2 | 1 << 12)

/* PEER_CALL if the call of a thread that is in it is one. */
static __always_inline __u32 peer_of(struct member *member, struct task_struct *task, __u32 call)
{
	if (call >= SYSCALLS_MAX || member->sleeps == BPF_CORE_READ(task, nvcsw))
		return 0;
	if (!(waits.takes_fd[call / 64] & (1ULL << (call % 64))))
		return 0;
	return PEER_TYPES & (1 << (file_type(task, PT_REGS_PARM1_CORE_SYSCALL(user_regs_of(task))) & 0xf)) ? PEER_CALL : 0;
}

static __always_inline void key_of(struct group_key *key, struct task_struct *task, __u32 call, __u32 half)
{
	struct task_struct *named = config.group_by == BY_THREAD ? task : BPF_CORE_READ(task, group_leader);

	key->id.call = call;
	key->epoch = half;
	if (config.group_by == BY_PROCESS)
		key->id.id = tgid_of(targets.pid_namespace, task);
	if (config.group_by == BY_THREAD)
		key->id.id = tid_of(targets.pid_namespace, task);
	if (config.group_by != BY_CALL)
		bpf_core_read(&key->id.comm, sizeof(key->id.comm), &named->comm);
}

static __always_inline void add_sum(struct group_key *key, __u32 kind, __u64 value)
{
	key->bucket = kind;
	ADD_TO_ROW(&sums, key, value, losses.sums_full);
}

/* Since when a call counts. */
static __always_inline __u64 begin_of(struct member *member)
{
	return member->entered_ns > window_start_ns ? member->entered_ns : window_start_ns;
}

/* The part of a call that lies in the interval which ended while it was open. */
static __always_inline void count_open_part(struct member *member, struct task_struct *task, __u32 call)
{
	__u64 begin_ns = begin_of(member), counted_ns = member->counted_ns, end_ns = edge_ns;
	struct group_key key = {};

	if (!end_ns || begin_ns >= end_ns || counted_ns >= end_ns)
		return;
	/* The iterator may look at a call that returns: the second to come here sees this, but for some ns (5.10 has no compare and
	 * exchange). */
	member->counted_ns = end_ns;
	/* Failures are not known yet. */
	if (config.failures)
		return;
	key_of(&key, task, call, open_epoch & 1);
	add_sum(&key, SUM_OPEN, 1);
	add_sum(&key, SUM_OPEN_NS, end_ns - larger_of(begin_ns, counted_ns));
}

static __always_inline bool is_wanted(__u32 error)
{
	/* ERESTARTSYS and its kin, 512 to 516, are for the kernel: the call goes on, or becomes EINTR behind our back. */
	return !config.failures || (config.error ? error == config.error : error && !(error >= 512 && error <= 516));
}

static __always_inline void count_return(struct member *member, struct task_struct *task, __u32 call, long ret,
					 __u64 now)
{
	__u32 half = (edge_ns && now <= edge_ns ? open_epoch : epoch) & 1, zero = 0;
	struct syscount_totals *sum = bpf_map_lookup_elem(&totals, &zero);
	__u32 error = ret < 0 && ret >= -MAX_ERROR ? -ret : 0;
	__u64 begin_ns = begin_of(member);
	struct group_key key = {};
	struct sum *group, first = {};

	if (!sum || !is_wanted(error))
		return;
	if (now < begin_ns) {
		__sync_fetch_and_add(&losses.negative, 1);
		return;
	}
	sum->calls++;
	sum->under_way_at_start += member->call == UNSEEN || member->entered_ns < window_start_ns;
	key_of(&key, task, call, half);
	group = find_group(&key);
	if (!group) {
		sum->groups++;
		group = make_group(&key, &first);
	}
	/* It is counted as one that found no room. */
	if (!group)
		return;
	add_to_group(&key, group, now - begin_ns);
	if (error)
		add_sum(&key, error, 1);
	if (member->counted_ns > begin_ns && !config.failures)
		add_sum(&key, SUM_EARLIER_NS, member->counted_ns - begin_ns);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);

	if (!member)
		return 0;
	member->call = call_of(task, number);
	member->counted_ns = 0;
	member->is_new = 0;
	member->sleeps = BPF_CORE_READ(task, nvcsw);
	member->entered_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task = current_task();
	struct member *member = member_of(task);
	__u64 now = bpf_ktime_get_ns();
	__u32 call;

	if (!member)
		return 0;
	if (member->is_new)
		goto out;
	/* Without a beginning it is one that seccomp or a debugger refused, or one that began before all this. */
	call = member->call;
	if (!member->entered_ns || call == UNSEEN)
		call = call_of(task, syscall_number(regs));
	if (call == UNSEEN)
		goto out;
	if (member->entered_ns)
		call |= peer_of(member, task, call);
	else
		member->entered_ns = now;
	/* The iterator passes over a call that it does not know, on a CPU: all of its time is then in the interval in which it returns. */
	if (now > edge_ns && !is_open_taken)
		count_open_part(member, task, call);
	if (in_window(now))
		count_return(member, task, call, ret, now);
out:
	member->entered_ns = 0;
	member->call = 0;
	member->counted_ns = 0;
	member->is_new = 0;
	return 0;
}

/* Run at the end of each interval. */
SEC("iter/task")
int count_open_calls(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;
	__u32 call;

	if (!task)
		return 0;
	member = member_of(task);
	/* A zombie is in the call that ended it for as long as nobody reaps it. */
	if (!member || !member->entered_ns || task_state(task) & TASK_DEAD)
		return 0;
	call = member->call;
	/* The registers are those of a call that is over where user code runs. */
	if (call == UNSEEN && !is_on_cpu(task))
		call = call_of(task, syscall_number(user_regs_of(task)));
	if (call != UNSEEN)
		count_open_part(member, task, call | peer_of(member, task, call));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
