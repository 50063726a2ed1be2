/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* contention.h: waits for the kernel's locks; behind lockstat's programs. */
#ifndef __HOST_CONTENTION_H__
#define __HOST_CONTENTION_H__

void host_begins(void *lock, __u32 flags)
{
	unsigned long long context[] = { (unsigned long long)lock, flags };

	contention_begin(context);
}

void host_ends(void *lock, int ret)
{
	unsigned long long context[] = { (unsigned long long)lock, (unsigned long long)ret };

	contention_end(context);
}

#endif
