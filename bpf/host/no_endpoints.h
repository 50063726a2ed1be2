/* SPDX-License-Identifier: MIT */
/* no_endpoints.h: programs that nobody asks which files and connections waits are for; before the tool's programs. */
#ifndef __HOST_NO_ENDPOINTS_H__
#define __HOST_NO_ENDPOINTS_H__

#define __OFFCPU_ENDPOINTS_BPF_H__
#define endpoint_of(task, call, polled, is_for_disk) 0
#define __OFFCPU_POLLS_BPF_H__
#define polled_now(task) 0
#define polled_then(task) 0
#define unread_poll(task, memory) (void)(memory)
#define __OFFCPU_EPOLLS_BPF_H__
#define epolled_by(task, began_ns, is_over) 0

#endif
