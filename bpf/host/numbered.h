/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* numbered.h: registers that hold their own places, from 1 on: reading them tells which one a program reads. */
#ifndef __HOST_NUMBERED_H__
#define __HOST_NUMBERED_H__

static struct pt_regs host_numbered(void)
{
	struct pt_regs numbered;

	for (__u32 at = 0; at < sizeof(numbered) / sizeof(__u64); at++)
		((__u64 *)&numbered)[at] = at + 1;
	return numbered;
}

#endif
