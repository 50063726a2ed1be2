/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime.c: offcputime's programs on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include "host.h"
#include "no_endpoints.h"
#include "no_stacks.h"

/* Two addresses are on every stack that is walked from outside. */
#undef bpf_get_task_stack
#define bpf_get_task_stack(task, addresses, bytes, flags) 16
static __u64 host_intern(__u32 slot);

/* A waker is known by its number. */
#undef intern_stack
#define intern_stack(slot, tgid, urgent) host_intern(slot)
/* Nobody asks for single waits. */
#undef bpf_ringbuf_query
#define bpf_ringbuf_query(ring, what) 0
/* The record of a call or return is kept for the test. */
static long host_keep_mark(const void *record, __u64 bytes);
#undef bpf_ringbuf_output
#define bpf_ringbuf_output(ring, record, bytes, flags) host_keep_mark(record, bytes)
#undef bpf_get_current_comm
#define bpf_get_current_comm(to, bytes) __builtin_memcpy(to, ((struct task_struct *)host_current())->comm, bytes)
#include "../offcputime/offcputime.bpf.c"
#include "offcputime_files.h"
#include "threads.h"

static __u64 host_intern(__u32 slot)
{
	const struct stack_record *record = &scratch_at(slot)->record;

	return record->kind == STACK_WAKER && record->tgid == record->addresses[0] ? record->tgid + 1 : 0;
}

/* All registers differ but those that hold the system call's number, which is 0. */
static void host_number_registers(void)
{
	__u64 *words = host_registers();
	const struct pt_regs *regs = (const struct pt_regs *)words;

	for (__u32 at = 0; at < sizeof(struct pt_regs) / sizeof(*words); at++) {
		words[at] = at + 1;
		if (syscall_number(regs))
			words[at] = 0;
	}
}

/* Start of a walk: instruction, stack and frame. */
void host_registers_of_all(__u64 told[3])
{
	struct user_regs copied;

	__builtin_memcpy(&copied, host_registers(), sizeof(copied));
	told[0] = user_ip(&copied);
	told[1] = user_sp(&copied);
	told[2] = user_fp(&copied);
}

void host_begin(__u64 now)
{
	struct offcputime_config all = {
		.stacks = { .no_user = 1 },
		.max_ns = ~0ULL,
		.state_mask = STATE_ANY,
	};

	host_number_registers();
	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

/* Rows have no stacks, and all programs' threads are in system call 0: only their flags differ. NULL: there is none. */
static const struct offcputime_value *host_row_of(__u32 tid, __u8 wait_flags, bool is_open, bool is_known)
{
	struct offcputime_key key = {
		.tgid = tid,
		.tid = tid,
		.wait_flags = wait_flags,
		.is_open = is_open,
		.is_known = is_known,
		.call.syscall = wait_flags & WAIT_KERNEL_THREAD ? NO_SYSCALL : 0,
	};

	host_call(key.comm, 't', tid);
	return bpf_map_lookup_elem(&offcpu_time, &key);
}

/* Times of a thread off the CPU, those that were open at the window's end or the others: how many, how long, ns of these on
 * a run queue, and how many were for nothing else.
 */
void host_off(__u32 tid, bool is_open, __u64 told[4])
{
	for (int flags = 0; flags < 256; flags++) {
		const struct offcputime_value *value = host_row_of(tid, flags, is_open, false);

		if (!value)
			continue;
		told[0] += value->count;
		told[1] += value->blocked_ns + value->runqueue_ns;
		told[2] += value->runqueue_ns;
		told[3] += flags & WAIT_RUNNABLE ? value->count : 0;
	}
}

void host_end(__u64 now)
{
	window_end_ns = now;
	takes_late = 1;
}

void host_ask(__u64 min_ns, __u64 max_ns, __u32 state_mask)
{
	struct offcputime_config asked = config;

	asked.min_ns = min_ns;
	asked.max_ns = max_ns;
	asked.state_mask = state_mask;
	host_poke(&config, &asked, sizeof(asked));
}

/* Times that are over, of a thread that said so when it left. */
void host_row(__u32 tid, __u8 wait_flags, bool is_known, struct offcputime_value *to)
{
	const struct offcputime_value *value = host_row_of(tid, wait_flags, false, is_known);

	*to = value ? *value : (struct offcputime_value){};
}

/* The words of an iterator on a task. False: it has none. */
static bool host_tells(int (*iterator)(struct bpf_iter__task *), struct task_struct *task, struct open_phase *to)
{
	struct bpf_iter_meta meta = {};
	struct bpf_iter__task context = { .meta = &meta, .task = task };
	const struct open_phase *open;

	iterator(&context);
	open = host_written();
	if (open)
		*to = *open;
	return open;
}

/* All that is said of a living target when the window ends. */
bool host_close(struct task_struct *task, struct open_phase *to)
{
	return host_tells(close_members, task, to);
}

/* Processes are told apart. */
void host_ask_details(void)
{
	struct offcputime_config asked = config;

	asked.details = 1;
	host_poke(&config, &asked, sizeof(asked));
}

/* Stacks are walked where a thread that has been switched to leaves the scheduler. */
void host_walk_on_exit(void)
{
	struct offcputime_config asked = config;

	asked.walk_on_exit = 1;
	host_poke(&config, &asked, sizeof(asked));
}

/* It is no target any more. */
void host_leave(struct task_struct *task)
{
	leave(task);
}

/* Another window of several begins. */
void host_begin_next(__u64 now)
{
	takes_late = 0;
	walk_on_leaving = 1;
	window_end_ns = 0;
	window_start_ns = now;
}

/* The same, and no late event closes a wait. */
void host_end_within_budget(__u64 now)
{
	window_end_ns = now;
}

/* After the end: whether the stacks of a task's wait are told of. */
bool host_stacks(struct task_struct *task, struct open_phase *to)
{
	return host_tells(waiting_members, task, to);
}

/* Before another window: whether the stacks of a task's wait are told of. */
bool host_open(struct task_struct *task, struct open_phase *to)
{
	return host_tells(open_members, task, to);
}

/* Time that a living target had been in the window when it came into the phase that it is in. */
__u64 host_accounted(struct task_struct *task)
{
	struct member *member = member_of(task);

	return member->since_ns - member->joined_ns;
}

/* Rows tell who ended a wait, and which file it was for. */
void host_ask_whom_and_what(void)
{
	struct offcputime_config asked = config;
	struct wait_config what = waits;

	asked.wakers = 1;
	what.takes_fd[0] = 1;
	host_poke(&config, &asked, sizeof(asked));
	host_poke(&waits, &what, sizeof(what));
}

bool host_goes_without_stack(__u32 cpu, __u64 length_ns)
{
	host_set(0, cpu, NULL);
	return goes_without_stack(length_ns);
}

static struct told_mark host_mark;
static bool host_is_marked;

static long host_keep_mark(const void *record, __u64 bytes)
{
	if (bytes != sizeof(host_mark))
		return 0;
	__builtin_memcpy(&host_mark, record, bytes);
	host_is_marked = true;
	return 0;
}

/* Bytes that a call leaves on the stack. */
__u64 host_return_bytes(void)
{
	return RETURN_BYTES;
}

/* Calls of one function are pieces of work. */
void host_ask_calls(void)
{
	struct offcputime_config asked = config;

	asked.calls = 1;
	host_poke(&config, &asked, sizeof(asked));
}

/* The thread has another program, in a memory of its own. */
void host_exec(struct task_struct *task, __u64 memory)
{
	task->mm = (struct mm_struct *)memory;
}

/* The current thread calls the function with its stack pointer there, or comes back to whom it was called by. False: nothing is
 * told.
 */
bool host_calls(__u64 sp, bool is_end, struct told_mark *to)
{
	struct pt_regs regs = { .sp = sp };

	host_is_marked = false;
	if (is_end)
		work_ends(&regs);
	else
		work_begins(&regs);
	*to = host_mark;
	return host_is_marked;
}
