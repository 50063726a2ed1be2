/* SPDX-License-Identifier: MIT */
/* neighbours.bpf.h: what others see of the hooks that we use. */
#ifndef __NEIGHBOURS_BPF_H__
#define __NEIGHBOURS_BPF_H__

/* What a program on a classic tracepoint has to return. After any other value the kernel (trace_call_bpf) keeps the event from all perf
 * sessions of the machine: perf counts nothing there as long as we run. It costs a comparison; our own event has no ring.
 */
#define PASS_ON 1

#endif
