/* SPDX-License-Identifier: MIT */
/* waits.bpf.h: what the kernel knows about why a task left its CPU.
 *
 * Facts only: user space, which has the architecture's system call table, turns them into a reason.
 */
#ifndef __WAITS_BPF_H__
#define __WAITS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "targets.bpf.h"

#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED_OR_TRACED 0xc
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400
/* The state bits that /proc and bcc's --state know. */
#define TASK_REPORT_BITS 0xff
#define SYSCALLS_MAX 512
/* No system call: a fault or an interrupt. */
#define NO_SYSCALL (-1)
/* One of a 32-bit program: its number is another call's here, and its arguments are in other registers. */
#define COMPAT_SYSCALL SYSCALLS_MAX

enum wait_flags {
	/* It could have gone on running. */
	WAIT_RUNNABLE = 1 << 0,
	WAIT_THROTTLED = 1 << 1,
	WAIT_UNINTERRUPTIBLE = 1 << 2,
	/* TASK_IDLE: a kernel thread with nothing to do. */
	WAIT_NOLOAD = 1 << 3,
	WAIT_BLOCK_IO = 1 << 4,
	/* The kernel recorded the mutex, rwsem or rtmutex it waits for. */
	WAIT_KERNEL_LOCK = 1 << 5,
	WAIT_KERNEL_THREAD = 1 << 6,
	/* Stopped by a signal or a debugger. */
	WAIT_STOPPED = 1 << 7,
};

struct wait_config {
	__s32 futex_syscall;
	__u32 pad;
	/* Bit n: the first argument of system call n is a file descriptor. */
	__u64 takes_fd[SYSCALLS_MAX / 64];
};

const volatile struct wait_config waits = {};

/* Kinds of files that the kernel's types do not tell apart, numbered above every value of S_IFMT >> 12. */
enum special_file {
	FILE_EVENTFD = 16,
	FILE_INOTIFY,
	FILE_TIMERFD,
	FILE_SIGNALFD,
	/* A socket of a connection that the other end asked for. */
	FILE_ACCEPTED,
	/* A poll of a socket that is no end of a connection, of a descriptor of no kind above, or of several that are not for one peer. */
	FILE_OTHER,
	/* A poll of no descriptor for a time: a sleep. */
	FILE_NOTHING,
};

/* A poll is seen, and it does not tell which descriptor it is for. */
#define POLLS_OTHER (1U << 31)
/* Beside 1 + the descriptor: it is for output, too. */
#define POLLS_OUTPUT (1U << 30)
/* It is for several peers. */
#define POLLS_PEERS (1U << 29)
/* A poll is seen, of no descriptor and for a time: none has such a number. */
#define POLLS_NOTHING (~0U)

#define TYPE_FIFO 1
#define TYPE_REGULAR 8
#define TYPE_SOCKET 12
#define ANON_INODE_FS_MAGIC 0x09041934
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_TCP 6

/* What the system call in progress says. */
struct wait_call {
	__s16 syscall;
	/* S_IFMT >> 12 of the descriptor waited on, or enum special_file; 0: none, or another anonymous inode. */
	__u8 file_type;
	/* futex: operation with FUTEX_PRIVATE_FLAG, without that of the clock. */
	__u8 futex_op;
	/* futex: the value expected in the lock word, cut to 8 bits plus 0x100 for anything longer. */
	__u32 futex_value;
	/* offcputime's, where it is asked for: the file or connection that it waits for; 0: none. */
	__u64 endpoint;
};

/* Words of a thread's memory that tell what it polls: each a struct pollfd, or the first of an fd_set. */
struct poll_memory {
	__u64 address;
	__u32 words;
};

/* sched_switch's `preempt`: still runnable, whatever `state` says (it may have been about to sleep). The formatted
 * tracepoint has no `preempt` and 0x100 for such a task instead; what BTF programs get is the bare state.
 *
 * Two kinds of state leave it to the run queue. Those that ps does not know: real-time kernels' sleep for a spinlock, and since
 * f5d39b020809 (6.1) frozen tasks'. And, from 5.18 to 8feb053d5319 (6.15), that of a task which a signal kept from sleeping:
 * it had been read before.
 */
static __always_inline bool stays_runnable(struct task_struct *task, bool preempt, __u32 state)
{
	if (preempt || !state)
		return true;
	if (state & TASK_REPORT_BITS && !(task->thread_info.flags & SIGNAL_FLAGS))
		return false;
	return is_queued(task);
}

static __always_inline bool waits_for_kernel_lock(struct task_struct *task)
{
	if (bpf_core_field_exists(task->blocked_on) && task->blocked_on)
		return true;
	if (bpf_core_field_exists(task->blocker) && task->blocker)
		return true;
	return task->pi_blocked_on != NULL;
}

/* At switch-out, from the task that leaves: these fields change as soon as it runs again. */
static __always_inline __u8 wait_flags_of(struct task_struct *task, bool preempt, __u32 state)
{
	__u8 flags = 0;

	if (task->flags & PF_KTHREAD)
		flags |= WAIT_KERNEL_THREAD;
	if (stays_runnable(task, preempt, state))
		return flags | WAIT_RUNNABLE | (is_throttled(task) ? WAIT_THROTTLED : 0);
	if (state & TASK_UNINTERRUPTIBLE)
		flags |= WAIT_UNINTERRUPTIBLE;
	if (state & TASK_STOPPED_OR_TRACED)
		flags |= WAIT_STOPPED;
	if (state & TASK_NOLOAD)
		flags |= WAIT_NOLOAD;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		flags |= WAIT_BLOCK_IO;
	if (waits_for_kernel_lock(task))
		flags |= WAIT_KERNEL_LOCK;
	return flags;
}

/* NULL: no such descriptor. */
static __always_inline struct file *listed_file(struct files_struct *list, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(list, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = NULL;

	if (fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

static __always_inline struct file *open_file(struct task_struct *task, __u32 fd)
{
	return listed_file(BPF_CORE_READ(task, files), fd);
}

/* Anonymous inodes have no type; they had that of regular files since cfd86ef7e8e7 (6.16), for some releases. */
static __always_inline __u8 file_type_of(struct file *file)
{
	__u8 type = BPF_CORE_READ(file, f_inode, i_mode) >> 12;

	if (type == TYPE_REGULAR && BPF_CORE_READ(file, f_inode, i_sb, s_magic) == ANON_INODE_FS_MAGIC)
		return 0;
	return type;
}

static __always_inline __u8 file_type(struct task_struct *task, __u32 fd)
{
	return file_type_of(open_file(task, fd));
}

/* Its name tells, which /proc shows behind "anon_inode:": the first eight bytes. */
static __always_inline __u8 anonymous_type_of(struct file *file)
{
	char name[8] = {};

	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	if (!__builtin_memcmp(name, "[eventfd", sizeof(name)))
		return FILE_EVENTFD;
	if (!__builtin_memcmp(name, "inotify", sizeof(name)))
		return FILE_INOTIFY;
	if (!__builtin_memcmp(name, "[timerfd", sizeof(name)))
		return FILE_TIMERFD;
	if (!__builtin_memcmp(name, "[signalf", sizeof(name)))
		return FILE_SIGNALFD;
	return 0;
}

/* accept(2) gave it the socket. A listening TCP socket's copies keep its backlog, which no other has. A listening Unix socket's share
 * its name, counted by how many do: a client's own is its alone. Where only one copy is left, its client has to have none.
 */
static __always_inline bool was_accepted(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sock = BPF_CORE_READ(socket, sk);
	struct unix_sock *named = (void *)sock, *peer;
	struct unix_address *name;

	switch (BPF_CORE_READ(sock, __sk_common.skc_family)) {
	case AF_INET:
	case AF_INET6:
		return BPF_CORE_READ(sock, sk_max_ack_backlog);
	case AF_UNIX:
		if (BPF_CORE_READ(sock, sk_type) == SOCK_DGRAM || !bpf_core_field_exists(named->addr))
			return false;
		name = BPF_CORE_READ(named, addr);
		peer = (void *)BPF_CORE_READ(named, peer);
		return name && peer && (BPF_CORE_READ(name, refcnt.refs.counter) > 1 || !BPF_CORE_READ(peer, addr));
	default:
		return false;
	}
}

static __always_inline struct sock *sock_of(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(socket, sk);
}

/* The other end of a Unix stream; NULL: it has none, or is no such thing. */
static __always_inline struct unix_sock *unix_peer_of(struct sock *sock)
{
	struct unix_sock *named = (void *)sock;

	if (BPF_CORE_READ(sock, sk_type) != SOCK_STREAM || BPF_CORE_READ(sock, __sk_common.skc_family) != AF_UNIX ||
	    !bpf_core_field_exists(named->addr))
		return NULL;
	return (void *)BPF_CORE_READ(named, peer);
}

/* A stream or a datagram socket of the Internet that has been told where to. */
static __always_inline bool has_internet_peer(struct sock *sock)
{
	__u16 family = BPF_CORE_READ(sock, __sk_common.skc_family), type = BPF_CORE_READ(sock, sk_type);

	return (family == AF_INET || family == AF_INET6) && (type == SOCK_STREAM || type == SOCK_DGRAM) &&
	       BPF_CORE_READ(sock, __sk_common.skc_dport);
}

/* It has another end, whose name it was connected to, though that may be gone by now. Both ends of a Unix pair have none. */
static __always_inline bool is_connected(struct file *file)
{
	struct sock *sock = sock_of(file);
	struct unix_sock *peer = unix_peer_of(sock);

	if (!peer || !bpf_core_field_exists(peer->addr))
		return has_internet_peer(sock);
	return BPF_CORE_READ(peer, addr);
}

/* The same of a connection that the other end asked for, or a pair: it may be full. */
static __always_inline bool has_other_end(struct file *file)
{
	struct sock *sock = sock_of(file);

	return has_internet_peer(sock) || unix_peer_of(sock);
}

/* `polls`: other sockets than those of connections are of no kind then. */
static __always_inline __u8 waited_on(struct task_struct *task, __u32 fd, bool polls)
{
	struct file *file = open_file(task, fd);
	__u8 type = file_type_of(file);

	if (!type)
		return anonymous_type_of(file);
	if (type != TYPE_SOCKET)
		return type;
	if (was_accepted(file))
		return FILE_ACCEPTED;
	return polls && !is_connected(file) ? FILE_OTHER : type;
}

/* A thread that polls for output waits for the other end to take it, whoever that is. */
static __always_inline __u8 output_type(struct task_struct *task, __u32 fd)
{
	struct file *file = open_file(task, fd);

	return file_type_of(file) == TYPE_SOCKET && has_other_end(file) ? TYPE_SOCKET : FILE_OTHER;
}

/* The file that a call waits on. `polled`: what it polls, as polled_by_arguments() has it. */
static __always_inline __u8 file_type_in_call(struct task_struct *task, __u32 number, __u32 polled)
{
	bool polls = !(waits.takes_fd[number / 64] & (1ULL << (number % 64)));
	__u32 fd = polled - 1;
	__u8 type;

	if (!polls)
		fd = PT_REGS_PARM1_CORE_SYSCALL(user_regs_of(task));
	else if (!polled)
		return 0;
	else if (polled == POLLS_NOTHING)
		return FILE_NOTHING;
	else if (polled & POLLS_OTHER)
		return FILE_OTHER;
	else if (polled & POLLS_PEERS)
		return TYPE_SOCKET;
	else if (polled & POLLS_OUTPUT)
		return output_type(task, (polled & ~POLLS_OUTPUT) - 1);
	type = waited_on(task, fd, polls);
	/* A poll that is seen has a type. */
	return type || !polls ? type : FILE_OTHER;
}

/* The call that `task`, a user thread inside the kernel, is in. Argument registers keep their values until it ends. */
static __always_inline struct wait_call wait_call_of(struct task_struct *task, __u32 polled)
{
	struct wait_call call = { .syscall = NO_SYSCALL };
	const struct pt_regs *regs = user_regs_of(task);
	/* The kernel looks at so much of it; and arm64's, which has no more, is bounded for every verifier then. */
	__u32 number = syscall_number(regs);

	if (number >= SYSCALLS_MAX)
		return call;
	call.syscall = number;
	call.file_type = file_type_in_call(task, number, polled);
	if (number == waits.futex_syscall) {
		__u32 value = PT_REGS_PARM3_CORE_SYSCALL(regs);

		call.futex_op = PT_REGS_PARM2_CORE_SYSCALL(regs) & 0xff;
		call.futex_value = value > 0xff ? 0x100 : value;
	}
	return call;
}

/* The same; of a 32-bit program nothing but that it is in one. */
static __always_inline struct wait_call native_call_of(struct task_struct *task, __u32 polled)
{
	struct wait_call compat = { .syscall = COMPAT_SYSCALL };
	struct wait_call call = wait_call_of(task, polled);

	return call.syscall != NO_SYSCALL && is_compat_call(task) ? compat : call;
}

#endif
