/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_futexes.c: lockstat's programs for programs' locks on this machine, and what a test asks of them. */
#include "vmlinux.h"
#include <sys/mman.h>
#include "host.h"

static long host_read_user(void *to, __u32 bytes, const void *from);

#include "futex_registers.h"
/* A thread is found by its number. */
#undef bpf_ksym_exists
#define bpf_ksym_exists(symbol) (host_has_vpid || __builtin_strcmp(#symbol, "bpf_task_from_vpid"))
/* This kernel has bpf_task_from_vpid. */
static bool host_has_vpid = true;
#include "lock_stacks.h"
#include "no_names.h"
#define bpf_core_field_offset(field) ((__u64)(void *)&(field))
#undef claim_scratch
#undef release_scratch
#undef bpf_probe_read_user
#define bpf_probe_read_user(to, bytes, from) host_read_user(to, bytes, from)
#include "../lockstat/lockstat.bpf.c"
#include "futex_numbers.h"
#include "futex_compat.h"
#include "lock_threads.h"

/* `has_vpid`: by any namespace's numbers. */
void host_begin(__u64 now, bool has_vpid)
{
	struct lockstat_config all = { .futexes = 1 };

	host_has_vpid = has_vpid;
	host_learn_registers();
	host_poke(&config, &all, sizeof(all));
	window_start_ns = now;
}

#define HOST_PAGE 4096
#define HOST_FIRST_PAGE (1UL << 28)
#define HOST_PAGE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)

/* Behind a page is nothing. */
static long host_read_user(void *to, __u32 bytes, const void *from)
{
	if ((__u64)from % HOST_PAGE + bytes > HOST_PAGE)
		return -14;
	__builtin_memcpy(to, from, bytes);
	return 0;
}

struct task_struct *host_thread(__u32 tid, __u32 tgid)
{
	struct task_struct *task = host_make_task(HOST_TASK_BYTES);

	task->pid = tid;
	task->tgid = tgid;
	task->comm[0] = (char)tid;
	task->group_leader = task->real_parent = task;
	task->thread_pid = host_make_task(sizeof(*task->thread_pid) + sizeof(struct upid));
	/* Processes have different memory. */
	task->mm = (void *)(__u64)tgid;
	if (tid)
		host_threads[tid] = task;
	return task;
}

/* It is this deep in PID namespaces. */
void host_level(struct task_struct *task, __u32 level)
{
	task->thread_pid->level = level;
}

/* Another page; all processes have it at the same address, which 32-bit programs can have, too. */
void *host_page(void)
{
	void *page = MAP_FAILED;

	for (__u64 at = HOST_FIRST_PAGE; page == MAP_FAILED && at < 1UL << 32; at += HOST_PAGE)
		page = mmap((void *)at, HOST_PAGE, PROT_READ | PROT_WRITE, HOST_PAGE_FLAGS, -1, 0);
	return page;
}

void host_free_page(void *page)
{
	munmap(page, HOST_PAGE);
}

/* User space has attached the programs for 32-bit calls. */
void host_attach(void)
{
	futex_compat_calls = 1;
}

static void host_enters_any(void)
{
	struct task_struct *task = host_current();
	struct pt_regs *registers = host_registers_of(task);
	unsigned long long context[] = { (unsigned long long)registers, (__u32)syscall_number_here(registers) };

	if (futex_compat_calls)
		compat_entries(context);
}

/* The entry of futex(2) has a program, and of no other call but those of 32-bit programs. */
void host_enters(const __u64 arguments[6])
{
	struct syscall_entry context = { .number = SYSCALL_FUTEX };

	__builtin_memcpy(context.args, arguments, sizeof(context.args));
	if (!host_is_compat(host_current()))
		futex_entry(&context);
	host_enters_any();
}

/* Nobody sees 32-bit programs' returns before those are attached. */
void host_returns(__s64 ret)
{
	struct task_struct *task = host_current();
	struct syscall_return context = { .number = (__u32)syscall_number_here(host_registers_of(task)), .ret = ret };

	if (!host_is_compat(task))
		futex_exit(&context);
	if (futex_compat_calls)
		compat_returns(&context);
}

#include "lockstat_rows.h"

/* Calls that slept unseen; waits that returned; what found no room in each table: locks, their ns, buckets, waiters, their ns,
 * holders, descriptions; stacks that found no scratch; maxima that were raised beside others; 32-bit waiters.
 * Then what must never happen.
 */
void host_told(__u64 told[13])
{
	told[0] = futex_losses.unseen;
	told[1] = futex_events;
	told[2] = lock_losses.locks_full;
	told[3] = lock_losses.locks_full_ns;
	told[4] = lock_losses.buckets_full;
	told[5] = lock_losses.waiters_full;
	told[6] = lock_losses.waiters_full_ns;
	told[7] = lock_losses.holders_full;
	told[8] = futex_losses.undescribed;
	told[9] = futex_losses.unwalked;
	told[10] = lock_losses.maxima_raced;
	told[11] = futex_compat_tasks;
	told[12] = lock_losses.negative + host_references + host_claims + host_misnamed;
}

/* The thread's place in user space, a number. */
void host_stands(struct task_struct *task, __u64 place)
{
	struct pt_regs *registers = host_registers_of(task), numbered = host_numbered();

	((__u64 *)registers)[saved_ip(&numbered) - 1] = place;
	((__u64 *)registers)[saved_sp(&numbered) - 1] = place + 1;
}

/* The open wait that the iterator has handed over: lock, user registers, process, thread; all 0: none. */
void host_handed(__u64 handed[9])
{
	const struct open_futex none = {}, *open = host_written() ?: &none;
	const __u64 all[] = {
		open->lock.address, open->lock.class, open->lock.confidence, open->lock.tgid, open->ip, open->sp, open->tgid, open->tid,
		open->lock.side == LOCK_USER,
	};

	__builtin_memcpy(handed, all, sizeof(all));
}

static bool host_tells_address(const void *of, const void *value, void *to)
{
	const struct host_taking *taking = to;
	const struct lock_id *lock = of;
	const struct futex_lock *known = value;

	HOST_ROW(taking, HOST_LOCK(4, *lock), known->address_id, known->evidence.place, known->evidence.value);
	return false;
}

/* Locks that are described, which stay: each with the id of its address, the place of an owner, and the word that was expected. */
void host_tell(host_row *row, void *to)
{
	struct host_taking taking = { 0, row, to };

	host_visit(&futex_locks, host_tells_address, &taking);
}
