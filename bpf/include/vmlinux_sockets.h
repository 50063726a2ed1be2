/* SPDX-License-Identifier: MIT */
/* vmlinux_sockets.h: the kernel's types of sockets, as far as the tools look at them; a part of vmlinux.h. */
#ifndef __VMLINUX_SOCKETS_H__
#define __VMLINUX_SOCKETS_H__

struct in6_addr {
	u64 words[2];
};

struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_max_ack_backlog;
	u16 sk_type;
	u16 sk_protocol;
	struct pid *sk_peer_pid;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct {
		u32 lrcvtime;
	} icsk_ack;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 lsndtime;
	u32 write_seq;
	u64 first_tx_mstamp;
	u64 bytes_sent;
	u64 bytes_received;
};

struct socket {
	struct sock *sk;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	refcount_t refcnt;
	int len;
	struct sockaddr_un name[];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

#endif
