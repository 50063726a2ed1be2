/* SPDX-License-Identifier: MIT */
/* offcpu_endpoints.bpf.h: the file, or the end of a connection, that a system call on a descriptor waits for. Off unless asked for.
 *
 * An accepted socket's is the name that clients called, for there are as many of those as like to come; else it is the other end.
 */
#ifndef __OFFCPU_ENDPOINTS_BPF_H__
#define __OFFCPU_ENDPOINTS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "hash.bpf.h"
#include "maps.bpf.h"
#include "offcpu_config.bpf.h"
#include "paths.bpf.h"
#include "waits.bpf.h"

#define MAX_ENDPOINTS 1024

#define TYPE_DIRECTORY 4
#define TYPE_BLOCK_DEVICE 6

enum endpoint_kind {
	ENDPOINT_NONE,
	ENDPOINT_FILE,
	ENDPOINT_UNIX,
	ENDPOINT_IPV4,
	ENDPOINT_IPV6,
};

struct endpoint {
	/* The other end's address in network order, IPv4 in the first four bytes; a file's inode and device, above which is a print of all
	 * else that tells it from others; the kernel's address of a Unix socket's name, which is that of its listening socket.
	 */
	__u64 address[2];
	/* The other end's, or its own where it was accepted. */
	__u16 port;
	/* IPPROTO_TCP or IPPROTO_UDP. */
	__u8 protocol;
	__u8 kind;
	__u8 is_accepted;
	__u8 pad[3];
};

/* Waits for endpoints that found no room. */
__u64 endpoints_full = 0;

/* Hash → endpoint; and the path of a file, or of a Unix socket, whose name is in the first words as it is. */
MAP(HASH, endpoints, __u64, struct endpoint, MAX_ENDPOINTS);
MAP(HASH, endpoint_paths, __u64, struct file_path, MAX_ENDPOINTS);

static __always_inline __u64 endpoint_hash(const struct endpoint *endpoint)
{
	__u64 words[sizeof(*endpoint) / sizeof(__u64)], hash = 0;

	__builtin_memcpy(words, endpoint, sizeof(words));
	for (int i = 0; i < sizeof(words) / sizeof(*words); i++)
		hash = mixed(hash, words[i]);
	return hash ?: 1;
}

/* include/uapi/linux/in.h */
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262

/* Others may have no ports. */
static __always_inline __u8 protocol_of(struct sock *sock)
{
	__u16 protocol = BPF_CORE_READ(sock, sk_protocol);

	if (protocol == IPPROTO_MPTCP)
		return IPPROTO_TCP;
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ? protocol : 0;
}

static __always_inline void describe_connection(struct endpoint *endpoint, struct sock *sock, __u16 family)
{
	endpoint->protocol = protocol_of(sock);
	if (endpoint->is_accepted) {
		endpoint->port = BPF_CORE_READ(sock, __sk_common.skc_num);
	} else {
		endpoint->port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
		if (family == AF_INET)
			bpf_core_read(endpoint->address, sizeof(__be32), &sock->__sk_common.skc_daddr);
		/* There is none without CONFIG_IPV6. */
		else if (bpf_core_field_exists(sock->__sk_common.skc_v6_daddr))
			bpf_core_read(endpoint->address, sizeof(endpoint->address), &sock->__sk_common.skc_v6_daddr);
	}
	if (endpoint->port && endpoint->protocol)
		endpoint->kind = family == AF_INET ? ENDPOINT_IPV4 : ENDPOINT_IPV6;
}

static __always_inline void describe_socket(struct endpoint *endpoint, struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sock = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sock, __sk_common.skc_family);
	struct unix_sock *named = (void *)sock;

	endpoint->is_accepted = was_accepted(file);
	if (family == AF_INET || family == AF_INET6) {
		describe_connection(endpoint, sock, family);
	} else if (family == AF_UNIX && bpf_core_field_exists(named->addr)) {
		if (!endpoint->is_accepted)
			named = (void *)BPF_CORE_READ(named, peer);
		endpoint->address[0] = (__u64)BPF_CORE_READ(named, addr);
		if (endpoint->address[0])
			endpoint->kind = ENDPOINT_UNIX;
	}
}

/* Numbers of inodes are used again, and by other subvolumes of btrfs; files are renamed. */
static __always_inline void describe_file(struct endpoint *endpoint, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u64 print = mixed(mixed(0, (__u64)inode), BPF_CORE_READ(inode, i_generation));

	print = mixed(print, BPF_CORE_READ(file, f_path.dentry, d_name.hash)) >> 32;
	endpoint->address[0] = BPF_CORE_READ(inode, i_ino);
	endpoint->address[1] = print << 32 | BPF_CORE_READ(inode, i_sb, s_dev);
	endpoint->kind = ENDPOINT_FILE;
}

/* A socket is none where the wait is for a disk: what is sent comes from there, or the memory that is received to. */
static __always_inline void describe_endpoint(struct endpoint *endpoint, struct file *file, bool is_for_disk)
{
	__u8 type = file_type_of(file);

	if (type == TYPE_SOCKET && !is_for_disk)
		describe_socket(endpoint, file);
	else if (type == TYPE_REGULAR || type == TYPE_DIRECTORY || type == TYPE_BLOCK_DEVICE)
		describe_file(endpoint, file);
}

/* The name as it is bound, NUL included where it begins with one: as long as the kernel says, and the rest is zeros. */
static __always_inline void read_socket_path(struct file_path *to, __u64 address)
{
	struct unix_address *name = (void *)address;
	__u32 bytes;

	/* Unix sockets are a module's whose types are not known. */
	if (!bpf_core_field_exists(name->len))
		return;
	bytes = BPF_CORE_READ(name, len) - sizeof(((struct sockaddr_un *)NULL)->sun_family);
	if (bytes <= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		bpf_core_read(to->names, bytes, &name->name[0].sun_path);
}

/* A device and connections need no path. */
static __always_inline void describe_path(__u64 hash, const struct endpoint *endpoint, struct file *file)
{
	struct file_path *path;

	if (endpoint->kind != ENDPOINT_FILE && endpoint->kind != ENDPOINT_UNIX)
		return;
	bpf_map_update_elem(&endpoint_paths, &hash, (const void *)&no_file_path, BPF_NOEXIST);
	path = bpf_map_lookup_elem(&endpoint_paths, &hash);
	if (path && endpoint->kind == ENDPOINT_FILE)
		read_path(path, file);
	else if (path)
		read_socket_path(path, endpoint->address[0]);
}

/* The hash of the endpoint behind a descriptor of a list of files; 0: it has none that is known. Not static: the verifier goes through
 * it once, not for each of its callers.
 */
__noinline __u64 endpoint_behind(__u64 files, __u32 fd, __u32 is_for_disk)
{
	struct file *file = listed_file((struct files_struct *)files, fd);
	struct endpoint endpoint = {};
	__u64 hash;

	describe_endpoint(&endpoint, file, is_for_disk);
	if (endpoint.kind == ENDPOINT_NONE)
		return 0;
	hash = endpoint_hash(&endpoint);
	if (bpf_map_lookup_elem(&endpoints, &hash))
		return hash;
	if (bpf_map_update_elem(&endpoints, &hash, &endpoint, BPF_ANY)) {
		__sync_fetch_and_add(&endpoints_full, 1);
		return 0;
	}
	describe_path(hash, &endpoint, file);
	return hash;
}

/* `polled`: what it polls, as polled_by_arguments() has it. */
static __always_inline __u64 endpoint_of(struct task_struct *task, const struct wait_call *call, __u32 polled, bool is_for_disk)
{
	__u32 number = call->syscall, alone = polled & ~(POLLS_OTHER | POLLS_OUTPUT | POLLS_PEERS);
	const struct pt_regs *regs;
	__u64 files;

	if (number >= SYSCALLS_MAX)
		return 0;
	files = (__u64)BPF_CORE_READ(task, files);
	regs = user_regs_of(task);
	if (config.on_fd[number / 64] & (1ULL << (number % 64)))
		return endpoint_behind(files, PT_REGS_PARM1_CORE_SYSCALL(regs), is_for_disk);
	return alone ? endpoint_behind(files, alone - 1, is_for_disk) : 0;
}

#endif
