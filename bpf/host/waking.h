/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* waking.h: a wakeup before it happens; behind the programs of a tool that asks for wakers. */
#ifndef __HOST_WAKING_H__
#define __HOST_WAKING_H__

void host_waking(struct task_struct *task)
{
	unsigned long long context[] = { (unsigned long long)task };

	sched_waking(context);
}

#endif
