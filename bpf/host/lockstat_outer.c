/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lockstat_outer.c: how lockstat knows where a thread waits for work, on this machine, and what a test asks of it. */
#include "vmlinux.h"
#include "host.h"

/* No call has its arguments in memory. */
#define bpf_probe_read_user(to, bytes, from) (-14)
#include "futex_registers.h"
#include "no_stacks.h"
#include "../lockstat/outer_wait.bpf.h"

#include "call_number.h"

static struct outer_wait host_outer;
static struct task_struct *host_task;

/* System calls that wait for work; a new thread. */
void host_begin(const __u64 calls[8])
{
	host_poke(&calls_for_work, calls, sizeof(calls_for_work));
	host_outer = (struct outer_wait){};
	host_task = host_make_task(HOST_TASK_BYTES);
}

bool host_has_compat(void)
{
#ifdef USER32_CS
	return true;
#else
	return false;
#endif
}

/* The thread sleeps in a call at a place on its stack. */
void host_sleeps(__u64 now, __u64 number, __u64 sp, bool compat)
{
	struct pt_regs *registers = host_registers_of(host_task);

	host_enter(registers, number);
	registers->sp = sp;
#ifdef USER32_CS
	registers->cs = compat ? USER32_CS : 0;
#endif
	outer_wait_begins(&host_outer, host_task, now);
}

void host_runs(__u64 now)
{
	host_set(now, 0, host_task);
	outer_wait_ends(&host_outer);
}

__u64 host_outer_sp(__u64 now, __u64 sp)
{
	return outer_sp(&host_outer, now, sp);
}
