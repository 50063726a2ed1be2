/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime_endpoints.c: the file or connection behind a descriptor, on this machine, and what a test asks of it. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_core_read.h>

#include "parameters.h"
#include "no_stacks.h"

/* Nothing is on the first page. */
#define bpf_probe_read_user(to, bytes, from) \
	((__u64)(from) < 4096 ? -14 : (__builtin_memcpy(to, (const void *)(from), bytes), 0))

/* A path is the name of its leaf, told by the inode's number. */
struct file_path;
static void host_path(struct file_path *to, const struct file *file);
#define bpf_core_field_offset(field) ((__u64)(void *)&(field))
#include "paths.bpf.h"
#define read_path(to, file) host_path(to, file)
#include "../offcputime/offcpu_endpoints.bpf.h"
#include "../offcputime/offcpu_polls.bpf.h"
#include "call_number.h"

static void host_path(struct file_path *to, const struct file *file)
{
	to->is_whole = 1;
	to->names[0][0] = file->f_inode->i_ino;
}

/* A descriptor's file: S_IFMT >> 12, inode and device; a socket's words. */
struct host_end {
	__u64 inode;
	__u64 address[2];
	__u32 device;
	__u32 mode;
	__u16 family;
	__u16 type;
	__u16 protocol;
	__u16 own_port;
	__u16 other_port;
	__u16 backlog;
	/* Unix: names of both ends, 0: it has none, and how many sockets have the own one. */
	__u16 own_name;
	__u16 other_name;
	__u16 namesakes;
	/* The wait is for a disk. */
	__u16 is_for_disk;
	/* Tell apart files of one number. */
	__u32 generation;
	__u32 name;
	/* TCP: when it sent and received something last. */
	__u32 sent;
	__u32 received;
	/* The other end of a Unix socket is behind the next descriptor. */
	__u32 is_paired;
	/* TCP: 1: it has sent bytes; 2: it has received some. */
	__u32 has_bytes;
};

#define HOST_NAMES 8
#define HOST_FD 3
/* A pipe, and its other end. */
#define HOST_PIPE 2
#define HOST_PIPE_END 1

/* Listening sockets' names, each in one place for all that have it. */
static union {
	struct unix_address address;
	__u8 room[sizeof(struct unix_address) + sizeof(struct sockaddr_un)];
} host_names[HOST_NAMES];

static struct unix_address *host_name(__u16 number, __u16 namesakes)
{
	if (!number)
		return NULL;
	/* Bytes behind a name are none of it. */
	__builtin_memset(host_names[number].room, 'x', sizeof(host_names[number].room));
	host_names[number].address.refcnt.refs.counter = namesakes;
	host_names[number].address.len = sizeof(__u16) + 2;
	host_names[number].address.name->sun_path[0] = '/';
	host_names[number].address.name->sun_path[1] = 'a' + number;
	return &host_names[number].address;
}

static struct files_struct *host_open(const struct host_end *end)
{
	static struct inode inode;
	static struct dentry dentry;
	static struct super_block system;
	static struct inode pipe_inode = { .i_mode = TYPE_FIFO << 12 }, other_inode = { .i_mode = TYPE_SOCKET << 12 };
	static struct file pipe = { .f_inode = &pipe_inode }, pipe_end = { .f_inode = &pipe_inode };
	static struct file other_file = { .f_inode = &other_inode };
	static struct socket other_socket;
	static union {
		struct sock sk;
		struct tcp_sock tcp;
		struct unix_sock named;
	} own;
	static struct unix_sock other;
	static struct socket socket;
	static struct file file, *opened[HOST_FD + 2];
	static struct fdtable table;
	static struct files_struct files;
	struct sock_common *common = &own.sk.__sk_common;

	inode.i_mode = end->mode << 12 | 0644;
	inode.i_ino = end->inode;
	inode.i_generation = end->generation;
	inode.i_sb = &system;
	dentry.d_name.hash = end->name;
	system.s_dev = end->device;
	common->skc_family = end->family;
	common->skc_num = end->own_port;
	common->skc_dport = __builtin_bswap16(end->other_port);
	__builtin_memcpy(&common->skc_daddr, end->address, sizeof(common->skc_daddr));
	__builtin_memcpy(&common->skc_v6_daddr, end->address, sizeof(common->skc_v6_daddr));
	own.sk.sk_type = end->type;
	own.sk.sk_protocol = end->protocol;
	own.sk.sk_max_ack_backlog = end->backlog;
	if (end->family == AF_UNIX) {
		own.named.peer = &other.sk;
		other.addr = host_name(end->other_name, 1);
		own.named.addr = host_name(end->own_name, end->namesakes);
	} else {
		own.tcp.bytes_sent = end->has_bytes & 1;
		own.tcp.bytes_received = end->has_bytes >> 1;
		own.tcp.lsndtime = end->sent;
		own.tcp.inet_conn.icsk_ack.lrcvtime = end->received;
	}
	socket.sk = &own.sk;
	file.f_inode = &inode;
	file.f_path.dentry = &dentry;
	file.private_data = &socket;
	opened[HOST_FD] = &file;
	other_socket.sk = &other.sk;
	other_file.private_data = &other_socket;
	opened[HOST_FD + 1] = end->is_paired ? &other_file : NULL;
	opened[HOST_PIPE] = &pipe;
	opened[HOST_PIPE_END] = &pipe_end;
	table.fd = opened;
	table.max_fds = HOST_FD + 2;
	files.fdt = &table;
	return &files;
}

/* Bit n of `on_fd`: a call on a descriptor. */
void host_calls(const __u64 on_fd[SYSCALLS_MAX / 64])
{
	struct offcputime_config asked = { .details = 1 };

	__builtin_memcpy(asked.on_fd, on_fd, sizeof(asked.on_fd));
	host_poke(&config, &asked, sizeof(asked));
}

bool host_is_connected(const struct host_end *end)
{
	return is_connected(host_open(end)->fdt->fd[HOST_FD]);
}

struct host_told {
	/* Its poll: while it is current, later, as long as nobody has told more, and then. */
	__u64 polled;
	__u64 polled_untold;
	__u64 polled_told;
	__u64 is_known;
	__u64 hash;
	struct endpoint endpoint;
	/* The first word of its path. */
	__u64 path;
};

/* Words of other waits tell nothing. */
static void host_tell_poll(struct task_struct *task, struct host_told *told)
{
	struct polled_words said = { .since = switches_of(task) };
	struct poll_memory memory;
	__u32 tid = task->pid;

	unread_poll(task, &memory);
	bpf_map_update_elem(&polled_before, &tid, &said, BPF_ANY);
	told->polled_untold = polled_then(task);
	said.since++;
	if (memory.address && !bpf_probe_read_user(said.words, memory.words * sizeof(*said.words), memory.address))
		bpf_map_update_elem(&polled_before, &tid, &said, BPF_ANY);
	told->polled_told = polled_then(task);
}

/* A thread waits in a call for an endpoint: that which is told of it. */
void host_waits(const struct host_end *end, __u64 number, const __u64 arguments[5], struct host_told *told)
{
	struct task_struct task = { .files = host_open(end), .pid = 7 };
	struct wait_call call = { .syscall = number };
	struct file_path *path;
	__u64 hash;

	host_enter(host_registers(), number);
	__builtin_memcpy(&HOST_PARAMETER((struct pt_regs *)host_registers(), 0), arguments, 5 * sizeof(*arguments));
	told->polled = polled_now(&task);
	host_tell_poll(&task, told);
	hash = endpoint_of(&task, &call, told->polled, end->is_for_disk);
	if (!hash)
		return;
	told->is_known = 1;
	told->endpoint = *(struct endpoint *)bpf_map_lookup_elem(&endpoints, &hash);
	told->hash = hash;
	path = bpf_map_lookup_elem(&endpoint_paths, &hash);
	told->path = path ? path->names[0][0] : 0;
}

/* The address at which the kernel has a name. */
__u64 host_place(__u32 number)
{
	return (__u64)&host_names[number].address;
}

__u64 host_full(void)
{
	return endpoints_full;
}
