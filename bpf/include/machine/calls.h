/* SPDX-License-Identifier: MIT */
/* calls.h: the arguments of a system call. */
#ifndef __MACHINE_CALLS_H__
#define __MACHINE_CALLS_H__

#include "vmlinux.h"

struct call_arguments {
	__u64 args[6];
};

#endif
