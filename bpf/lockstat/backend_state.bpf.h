/* SPDX-License-Identifier: MIT */
/* backend_state.bpf.h: what is known of a PostgreSQL process, part of the tool's `struct member`.
 *
 * Since release 14 such a process has the address of its wait event in a variable, `my_wait_event_info`. User space finds the
 * variable; processes are forked by the server without another exec, so that it is at the same address in all of one server.
 */
#ifndef __BACKEND_STATE_BPF_H__
#define __BACKEND_STATE_BPF_H__

#include "futex_state.bpf.h"
#include "lock_tables.bpf.h"
#include "maps.bpf.h"

/* `class` of what a server's processes wait for: no futex operation. `address` is the wait event then, `tgid` the server. */
#define LOCK_OF_SERVER 0xfe

/* The class of a wait event: its high byte. */
enum wait_event_class {
	EVENT_LWLOCK = 0x01,
	EVENT_LOCK = 0x03,
	EVENT_BUFFER_PIN = 0x04,
	EVENT_ACTIVITY = 0x05,
	EVENT_CLIENT = 0x06,
	EVENT_EXTENSION = 0x07,
	EVENT_IPC = 0x08,
	EVENT_TIMEOUT = 0x09,
	EVENT_IO = 0x0a,
};

/* User space's knowledge of a process. */
struct server_process {
	/* Address of the variable that has the address of its wait event. */
	__u64 pointer_at;
	/* Times that its main thread had left a CPU before and after it was looked at. */
	__u64 switches;
	/* Process that has made it; itself, where it is that one. */
	__u32 server;
	/* Event that it was waiting for then; 0: none, or it ran meanwhile. */
	__u32 event;
};

#define MAX_SERVER_PROCESSES 16384

/* PID → what is known of it */
MAP(HASH, server_processes, __u32, struct server_process, MAX_SERVER_PROCESSES);

struct backend {
	/* 0: it is none. */
	__u64 pointer_at;
	/* The memory that this is true of: an exec makes another program of a process. */
	__u64 mm;
	__u32 server;
	/* The event that it had announced when that was read last; 0: none. */
	__u32 event;
};

/* It waits for work. Numbers that no release has are no work. */
static __always_inline bool is_idle_event(__u32 event)
{
	__u32 class = event >> 24;

	return class == EVENT_ACTIVITY || class == EVENT_CLIENT || class == EVENT_TIMEOUT;
}

static __always_inline void identify_event(struct lock_id *lock, __u32 event, __u32 server)
{
	__builtin_memset(lock, 0, sizeof(*lock));
	lock->address = event;
	lock->tgid = server;
	lock->side = LOCK_USER;
	lock->class = LOCK_OF_SERVER;
}

#endif
