/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* oracle: a log of what the kernel does.
 *
 * Probes of a tracepoint run in the order in which they were attached (kernel/tracepoint.c, func_add). A log attached before a
 * tool and one attached after it have every time that the tool can have seen between theirs.
 */
#include "calls.bpf.h"
#include "locks.bpf.h"
#include "requests.bpf.h"
#include "scheduler.bpf.h"
#include "ticks.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
