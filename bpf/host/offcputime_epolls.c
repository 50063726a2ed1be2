/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* offcputime_epolls.c: what an epoll watches, on this machine, and what a test asks of it. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_core_read.h>

#include "parameters.h"
#include "no_stacks.h"

#define bpf_core_field_offset(field) ((__u64)(void *)&(field))
/* Nobody polls by words here. */
#define bpf_probe_read_user(to, bytes, from) ((__u64)(from) ? -14 : 0)
#include "../offcputime/offcpu_epolls.bpf.h"
#include "call_number.h"

#define HOST_WATCHED 40
#define HOST_CONNECTIONS 8
#define HOST_EPOLL 3
/* Descriptors in a row may be two ends of one thing: these are not. */
#define HOST_FD(at) (5 + 2 * (at))
#define HOST_FDS HOST_FD(HOST_WATCHED)

enum host_kind {
	HOST_EVENTFD,
	HOST_TIMERFD,
	HOST_INOTIFY,
	HOST_LISTENER,
	HOST_ACCEPTED,
	HOST_PEER,
	HOST_UDP,
	/* Unix sockets: the other end is in the same process, or in another one. */
	HOST_PAIR,
	HOST_UNIX,
};

/* A watched file: enum host_kind; what it hangs below in the tree, 1 + its place, and where. */
struct host_item {
	__u32 kind;
	/* One of HOST_CONNECTIONS, where it is a peer. */
	__u32 connection;
	__u32 parent;
	__u32 is_right;
	/* TCP: ticks and bytes. */
	__u32 sent_at;
	__u32 received_at;
	__u32 write_seq;
	/* Its descriptor is another file's by now. */
	__u32 is_gone;
	__u64 sent;
	__u64 received;
	/* The time of its question, us. */
	__u64 asked_us;
};

/* A thread in an epoll, since then. `ready`: 1 + the place of the item that is ready; 0: none is. */
struct host_wait {
	__u64 count;
	__u64 ready;
	__u64 number;
	__u64 began_ns;
	__u64 now_ns;
	__u64 is_over;
};

static struct tcp_sock host_peers[HOST_CONNECTIONS], host_others[HOST_WATCHED];
static struct unix_sock host_unix, host_pair, host_end;
static struct pid host_own;

static struct sock *host_socket(const struct host_item *item, struct tcp_sock *tcp)
{
	struct sock *sock = (void *)tcp;
	struct unix_sock *named = item->kind == HOST_PAIR ? &host_pair : &host_unix;

	if (item->kind >= HOST_PAIR) {
		named->sk.__sk_common.skc_family = AF_UNIX;
		named->sk.sk_type = SOCK_STREAM;
		named->peer = &host_end.sk;
		named->sk.sk_peer_pid = item->kind == HOST_PAIR ? &host_own : NULL;
		return &named->sk;
	}
	sock->__sk_common.skc_family = AF_INET;
	sock->__sk_common.skc_dport = item->kind == HOST_LISTENER ? 0 : 80;
	sock->sk_type = item->kind == HOST_UDP ? SOCK_DGRAM : SOCK_STREAM;
	sock->sk_protocol = item->kind == HOST_UDP ? 17 : IPPROTO_TCP;
	sock->sk_max_ack_backlog = item->kind == HOST_LISTENER || item->kind == HOST_ACCEPTED;
	tcp->lsndtime = item->sent_at;
	tcp->inet_conn.icsk_ack.lrcvtime = item->received_at;
	tcp->write_seq = item->write_seq;
	tcp->bytes_sent = item->sent;
	tcp->bytes_received = item->received;
	tcp->first_tx_mstamp = item->asked_us;
	return sock;
}

static void host_file(const struct host_item *item, __u32 at, struct file *file)
{
	static const char *const names[] = { "[eventfd]", "[timerfd]", "inotify" };
	static struct inode anonymous, sockets = { .i_mode = TYPE_SOCKET << 12 };
	static struct dentry dentries[HOST_WATCHED];
	static struct socket ends[HOST_WATCHED];

	file->f_inode = item->kind <= HOST_INOTIFY ? &anonymous : &sockets;
	dentries[at].d_name.name = (const unsigned char *)(item->kind <= HOST_INOTIFY ? names[item->kind] : "");
	file->f_path.dentry = &dentries[at];
	ends[at].sk = host_socket(item, item->kind == HOST_PEER ? &host_peers[item->connection] : &host_others[at]);
	file->private_data = &ends[at];
}

/* Puts an item below another one in the tree. */
static void host_hang(struct rb_root *root, struct epitem *nodes, const struct host_item *item, __u32 at)
{
	struct rb_node *above = item->parent ? &nodes[item->parent - 1].rbn : NULL;

	if (!above)
		root->rb_node = &nodes[at].rbn;
	else if (item->is_right)
		above->rb_right = &nodes[at].rbn;
	else
		above->rb_left = &nodes[at].rbn;
}

/* The peer that the wait is for. */
__u64 host_epolls(const struct host_item *items, const struct host_wait *wait)
{
	struct file files[HOST_WATCHED] = {}, epoll = {};
	struct file *opened[HOST_FDS] = { [HOST_EPOLL] = &epoll };
	struct fdtable table = { .max_fds = HOST_FDS, .fd = opened };
	struct files_struct all = { .fdt = &table };
	struct task_struct task = { .files = &all, .thread_pid = &host_own };
	struct epitem nodes[HOST_WATCHED] = {};
	struct eventpoll poll = { .file = &epoll };

	epoll.private_data = &poll;
	poll.rdllist.next = &poll.rdllist;
	task.group_leader = &task;
	for (__u32 at = 0; at < wait->count; at++) {
		host_file(&items[at], at, &files[at]);
		opened[HOST_FD(at)] = items[at].is_gone ? NULL : &files[at];
		nodes[at].ffd.file = &files[at];
		nodes[at].ffd.fd = HOST_FD(at);
		host_hang(&poll.rbr.rb_root, nodes, &items[at], at);
	}
	if (wait->ready)
		poll.rdllist.next = &nodes[wait->ready - 1].rdllink;
	host_set(wait->now_ns, 0, &task);
	host_enter(host_registers(), wait->number);
	HOST_PARAMETER((struct pt_regs *)host_registers(), 0) = HOST_EPOLL;
	return epolled_by(&task, wait->began_ns, wait->is_over);
}
