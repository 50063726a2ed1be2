/* SPDX-License-Identifier: MIT */
/* offcpu_epolls.bpf.h: the peer that a thread's epoll is for, as polled_by_arguments() has it.
 *
 * An epoll that has ended was for whom it ended by, which the kernel has put on the list of what is ready. One that goes on, or whose
 * time is over, is for the peer that owes an answer. All that is sent is a question, acknowledgements too: who takes a queue's messages
 * and acknowledges each waits for its broker.
 */
#ifndef __OFFCPU_EPOLLS_BPF_H__
#define __OFFCPU_EPOLLS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "maps.bpf.h"
#include "polls.bpf.h"
#include "waits.bpf.h"

/* Peers whose bytes are known. */
#define MAX_WATCHED 4096
/* Levels of the tree that are looked at: all of it where no more than 13 files are watched. */
#define WATCHED_LEVELS 5

/* The kernel's address of a TCP connection → the number of the last byte that it had sent when an answer came. Those that were not used
 * for long make room for others, and are new then.
 */
MAP(LRU_HASH, sent_before, __u64, __u32, MAX_WATCHED);

static __always_inline bool is_epoll(__u64 number)
{
#ifdef SYSCALL_EPOLL_WAIT
	if (number == SYSCALL_EPOLL_WAIT)
		return true;
#endif
	return number == SYSCALL_EPOLL_PWAIT || number == SYSCALL_EPOLL_PWAIT2;
}

/* NULL: the descriptor is of another file by now. */
static __always_inline struct eventpoll *eventpoll_of(struct file *file)
{
	struct eventpoll *poll = BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(poll, file) == file ? poll : NULL;
}

/* It has sent something since it was answered last, as far as that was seen: nobody knows of a connection that is new. `is_over`: this
 * is an answer.
 */
static __always_inline bool has_asked(struct sock *sock, bool is_over)
{
	struct tcp_sock *tcp = (void *)sock;
	__u32 sent = BPF_CORE_READ(tcp, write_seq), *before;
	__u64 key = (__u64)sock;
	bool is_new;

	before = bpf_map_lookup_elem(&sent_before, &key);
	is_new = !before || *before != sent;
	if (before && is_over)
		*before = sent;
	else if (is_over)
		bpf_map_update_elem(&sent_before, &key, &sent, BPF_ANY);
	return is_new;
}

/* The most of the wait was after the question: another thread may have asked it meanwhile. */
static __always_inline bool is_asked_for_most(struct sock *sock, __u64 began_ns)
{
	struct tcp_sock *tcp = (void *)sock;
	/* The packet's time that was acknowledged last, or of the first one that was not. */
	__u64 asked_ns = BPF_CORE_READ(tcp, first_tx_mstamp) * 1000;

	return 2 * asked_ns <= began_ns + bpf_ktime_get_ns();
}

/* A TCP connection that the thread's program asked for. */
static __always_inline bool is_of_peer(struct file *file)
{
	struct sock *sock = sock_of(file);

	/* Most are of clients. */
	return BPF_CORE_READ(sock, sk_protocol) == IPPROTO_TCP && !was_accepted(file) && has_internet_peer(sock);
}

/* The file that is ready first is taken for the one that has ended the wait. */
static __always_inline __u32 ended_by(__u64 files, struct epitem *item, __u64 began_ns, bool is_over)
{
	struct file *file = BPF_CORE_READ(item, ffd.file);
	__u32 fd = BPF_CORE_READ(item, ffd.fd);

	if (file_type_of(file) != TYPE_SOCKET || !is_of_peer(file))
		return 0;
	/* The descriptor may be another file's by now. */
	if (listed_file((struct files_struct *)files, fd) != file)
		return 0;
	return has_asked(sock_of(file), is_over) && is_asked_for_most(sock_of(file), began_ns) ? 1 + fd : 0;
}

enum watched_kind {
	/* It wakes its thread up, or nothing is to come. */
	WATCHED_NOTHING,
	/* Work may come by it. */
	WATCHED_WORK,
	/* A client has asked, and was not answered. */
	WATCHED_REQUEST,
	/* A peer owes an answer. */
	WATCHED_PEER,
};

/* has_asked() tells of what happened within a tick. Of connections that it does not know it learns from ticks. */
static __always_inline bool is_owed_answer(struct sock *sock)
{
	struct tcp_sock *tcp = (void *)sock;
	__u64 key = (__u64)sock;
	bool is_owed;
	__u32 sent;

	if (bpf_map_lookup_elem(&sent_before, &key))
		return has_asked(sock, false) && last_word(sock) >= 0;
	is_owed = last_word(sock) > 0;
	sent = BPF_CORE_READ(tcp, write_seq) - is_owed;
	bpf_map_update_elem(&sent_before, &key, &sent, BPF_NOEXIST);
	return is_owed;
}

/* The other end of a Unix socket is in the same process: a thread is woken up by it. `own`: the process's struct pid. */
static __always_inline bool is_own_pair(struct sock *sock, __u64 own)
{
	return unix_peer_of(sock) && (__u64)BPF_CORE_READ(sock, sk_peer_pid) == own;
}

static __always_inline __u32 watched_socket(struct file *file, __u64 own, __u64 began_ns)
{
	struct sock *sock = sock_of(file);

	if (is_of_peer(file))
		return is_owed_answer(sock) && is_asked_for_most(sock, began_ns) ? WATCHED_PEER : WATCHED_NOTHING;
	if (!has_internet_peer(sock))
		return is_own_pair(sock, own) ? WATCHED_NOTHING : WATCHED_WORK;
	/* Datagrams have no last word, and most that have a peer are for statistics. */
	if (BPF_CORE_READ(sock, sk_protocol) != IPPROTO_TCP)
		return WATCHED_NOTHING;
	return last_word(sock) < 0 ? WATCHED_REQUEST : WATCHED_WORK;
}

static __always_inline bool is_own_pipe(__u64 files, __u32 fd, struct file *file)
{
	return is_other_end(files, fd + 1, file) || (fd && is_other_end(files, fd - 1, file));
}

/* Not static: the verifier goes through it once. */
__noinline __u32 watched_kind(__u64 files, __u64 at, __u64 own, __u64 began_ns)
{
	struct epitem *item = (void *)at;
	struct file *file = BPF_CORE_READ(item, ffd.file);
	__u32 fd = BPF_CORE_READ(item, ffd.fd);
	__u8 type = file_type_of(file);

	if (listed_file((struct files_struct *)files, fd) != file)
		return WATCHED_WORK;
	if (type == TYPE_SOCKET)
		return watched_socket(file, own, began_ns);
	if (type == TYPE_FIFO)
		return is_own_pipe(files, fd, file) ? WATCHED_NOTHING : WATCHED_WORK;
	type = type ?: anonymous_type_of(file);
	return type == FILE_EVENTFD || type == FILE_TIMERFD || type == FILE_SIGNALFD ? WATCHED_NOTHING : WATCHED_WORK;
}

/* Nodes of a tree by their places: the root has 1, and below n there are 2 n and 2 n + 1. 0: there is none. */
__noinline __u64 node_at(__u64 root, __u32 place)
{
	struct rb_node *node = (void *)root;
	bool below = false;

	for (int bit = WATCHED_LEVELS - 1; bit >= 0; bit--) {
		if (below && node)
			node = place >> bit & 1 ? BPF_CORE_READ(node, rb_right) : BPF_CORE_READ(node, rb_left);
		below = below || place >> bit & 1;
	}
	return (__u64)node;
}

/* The tree has more levels than are looked at. */
__noinline __u32 is_deeper(__u64 root)
{
	for (__u32 place = 1 << (WATCHED_LEVELS - 1); place < 1 << WATCHED_LEVELS; place++) {
		struct rb_node *node = (void *)node_at(root, place);

		if (node && (BPF_CORE_READ(node, rb_left) || BPF_CORE_READ(node, rb_right)))
			return true;
	}
	return false;
}

/* The peer that owes an answer, as polled_by_arguments() has it. Where work may come otherwise it is waited for only for the sake of a
 * client that has asked. Not static: the verifier goes through it once, not for each of its callers.
 */
__noinline __u32 owed_among(__u64 files, __u64 root, __u64 own, __u64 began_ns)
{
	bool has_work = false, has_request = false;
	struct epitem *item = NULL;
	__u32 peer = 0, kind;
	__u64 at;

	for (__u32 place = 1; place < 1 << WATCHED_LEVELS; place++) {
		at = node_at(root, place);
		if (!at)
			continue;
		at -= bpf_core_field_offset(item->rbn);
		kind = watched_kind(files, at, own, began_ns);
		has_work = has_work || kind == WATCHED_WORK;
		has_request = has_request || kind == WATCHED_REQUEST;
		if (kind == WATCHED_PEER)
			peer = peer ? POLLS_PEERS : 1 + (__u32)BPF_CORE_READ((struct epitem *)at, ffd.fd);
	}
	return has_request || !has_work ? peer : 0;
}

/* `is_over`: the wait has ended. */
__noinline __u32 epolled(__u64 files, __u32 fd, __u64 own, __u64 began_ns, __u32 is_over)
{
	struct eventpoll *poll = eventpoll_of(listed_file((struct files_struct *)files, fd)), *list = NULL;
	struct epitem *item = NULL;
	void *ready;
	__u64 root;

	if (!poll)
		return 0;
	ready = BPF_CORE_READ(poll, rdllist.next);
	if (ready != (void *)poll + bpf_core_field_offset(list->rdllist))
		return ended_by(files, ready - bpf_core_field_offset(item->rdllink), began_ns, is_over);
	root = (__u64)BPF_CORE_READ(poll, rbr.rb_root.rb_node);
	return is_deeper(root) ? 0 : owed_among(files, root, own, began_ns);
}

/* The peer of any task that is off its CPU since then, or is just back. */
static __always_inline __u32 epolled_by(struct task_struct *task, __u64 began_ns, bool is_over)
{
	const struct pt_regs *regs = user_regs_of(task);

	if (!is_epoll((__u32)syscall_number(regs)) || is_compat_call(task))
		return 0;
	return epolled((__u64)BPF_CORE_READ(task, files), PT_REGS_PARM1_CORE_SYSCALL(regs),
		       (__u64)BPF_CORE_READ(task, group_leader, thread_pid), began_ns, is_over);
}

#endif
