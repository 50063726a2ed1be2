/* SPDX-License-Identifier: MIT */
/* offcpu_endpoints.bpf.h: the file, or the end of a connection, that a system call on a descriptor waits for. Off unless asked for.
 *
 * Of an accepted socket it is the name that clients called, for there are as many of those as like to come; else it is the other end.
 */
#ifndef __OFFCPU_ENDPOINTS_BPF_H__
#define __OFFCPU_ENDPOINTS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "offcpu_config.bpf.h"
#include "paths.bpf.h"
#include "waits.bpf.h"

#define MAX_ENDPOINTS 4096
#define MAX_ENDPOINT_PATHS 1024

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
	/* The other end's address in network order, IPv4 in the first four bytes; a file's inode and device; the kernel's address of a Unix
	 * socket's name, which is that of its listening socket.
	 */
	__u64 address[2];
	/* The other end's, or its own where it was accepted. */
	__u16 port;
	__u8 protocol;
	__u8 kind;
	__u8 is_accepted;
	__u8 pad[3];
};

/* Waits for endpoints that found no room. */
__u64 endpoints_full = 0;

/* Hash → endpoint; and the path of a file, or of a Unix socket, whose name is in the first words as it is. Files beyond have a number. */
MAP(HASH, endpoints, __u64, struct endpoint, MAX_ENDPOINTS);
MAP(HASH, endpoint_paths, __u64, struct file_path, MAX_ENDPOINT_PATHS);

static __always_inline void describe_connection(struct endpoint *endpoint, struct sock *sock, __u16 family)
{
	endpoint->protocol = BPF_CORE_READ(sock, sk_protocol);
	if (endpoint->is_accepted) {
		endpoint->port = BPF_CORE_READ(sock, __sk_common.skc_num);
	} else {
		endpoint->port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
		if (family == AF_INET)
			bpf_core_read(endpoint->address, sizeof(__be32), &sock->__sk_common.skc_daddr);
		else
			bpf_core_read(endpoint->address, sizeof(endpoint->address), &sock->__sk_common.skc_v6_daddr);
	}
	if (endpoint->port)
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

static __always_inline void describe_endpoint(struct endpoint *endpoint, struct file *file)
{
	__u8 type = file_type_of(file);

	if (type == TYPE_SOCKET) {
		describe_socket(endpoint, file);
	} else if (type == TYPE_REGULAR || type == TYPE_DIRECTORY || type == TYPE_BLOCK_DEVICE) {
		endpoint->address[0] = BPF_CORE_READ(file, f_inode, i_ino);
		endpoint->address[1] = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
		endpoint->kind = ENDPOINT_FILE;
	}
}

/* The hash of stacks.bpf.h. */
static __always_inline __u64 endpoint_hash(const struct endpoint *endpoint)
{
	__u64 words[sizeof(*endpoint) / sizeof(__u64)], hash = 0;

	__builtin_memcpy(words, endpoint, sizeof(words));
	for (int i = 0; i < sizeof(words) / sizeof(*words); i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	return hash ?: 1;
}

/* As it is bound, NUL included where it begins with one: as long as the kernel says, and the rest is zeros. */
static __always_inline void read_socket_path(struct file_path *to, __u64 address)
{
	struct unix_address *name = (void *)address;
	__u32 bytes = BPF_CORE_READ(name, len) - sizeof(((struct sockaddr_un *)NULL)->sun_family);

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
__noinline __u64 endpoint_behind(__u64 files, __u32 fd)
{
	struct file *file = listed_file((struct files_struct *)files, fd);
	struct endpoint endpoint = {};
	__u64 hash;

	describe_endpoint(&endpoint, file);
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

/* 1 + the descriptor that a task, which is current and leaves its CPU, polls alone; 0: it polls none, or several. */
static __always_inline __u32 polled_alone(struct task_struct *task)
{
	const struct pt_regs *regs = user_regs_of(task);
	__u32 number = syscall_number(regs), fd;

	if (number >= SYSCALLS_MAX || (number != config.polls[0] && number != config.polls[1]))
		return 0;
	if (PT_REGS_PARM2_CORE_SYSCALL(regs) != 1)
		return 0;
	/* struct pollfd begins with it. */
	if (bpf_probe_read_user(&fd, sizeof(fd), (const void *)PT_REGS_PARM1_CORE_SYSCALL(regs)))
		return 0;
	return fd + 1;
}

/* `polled`: of polled_alone() when the wait began. */
static __always_inline __u64 endpoint_of(struct task_struct *task, const struct wait_call *call, __u32 polled)
{
	__u64 files = (__u64)BPF_CORE_READ(task, files);
	const struct pt_regs *regs = user_regs_of(task);
	__u32 number = call->syscall;

	if (number < SYSCALLS_MAX && config.on_fd[number / 64] & (1ULL << (number % 64)))
		return endpoint_behind(files, PT_REGS_PARM1_CORE_SYSCALL(regs));
	return polled ? endpoint_behind(files, polled - 1) : 0;
}

#endif
