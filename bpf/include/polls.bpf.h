/* SPDX-License-Identifier: MIT */
/* polls.bpf.h: the descriptor that a thread's poll is for. It is in the thread's memory, which can be read of a task that is current only.
 */
#ifndef __POLLS_BPF_H__
#define __POLLS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "waits.bpf.h"

/* include/uapi/asm-generic/poll.h: POLLIN and POLLRDNORM, and what output may come by */
#define POLL_INPUT (1 | 0x40)
#define POLL_OUTPUT 4
/* Descriptors in a word of an fd_set. */
#define WORD_BITS 64
/* More descriptors are an event loop's, and none is looked at. */
#define MOST_POLLED 4

static __always_inline bool is_poll(__u64 number)
{
#ifdef SYSCALL_POLL
	if (number == SYSCALL_POLL)
		return true;
#endif
	return number == SYSCALL_PPOLL;
}

static __always_inline bool is_select(__u64 number)
{
#ifdef SYSCALL_SELECT
	if (number == SYSCALL_SELECT)
		return true;
#endif
	return number == SYSCALL_PSELECT6;
}

/* A thread that waits for nothing and for ever waits for a signal. */
static __always_inline __u32 polls_nothing(__u64 number, const struct call_arguments *from)
{
	__u64 timeout = is_select(number) ? from->args[4] : from->args[2];

#ifdef SYSCALL_POLL
	/* The others have the address of one. */
	if (number == SYSCALL_POLL)
		return (__s32)timeout < 0 ? POLLS_OTHER : POLLS_NOTHING;
#endif
	return timeout ? POLLS_NOTHING : POLLS_OTHER;
}

static __always_inline __u32 array_by_arguments(__u64 number, const struct call_arguments *from, struct poll_memory *memory)
{
	__u32 count = from->args[1];

	if (!count)
		return polls_nothing(number, from);
	if (count > MOST_POLLED)
		return POLLS_OTHER;
	memory->address = from->args[0];
	memory->words = count;
	return 0;
}

/* Sets are for input or for output. Of those with descriptors beyond the first word nothing is known. */
static __always_inline __u32 sets_by_arguments(__u64 number, const struct call_arguments *from, struct poll_memory *memory)
{
	__u32 count = from->args[0];

	if (!count || !(from->args[1] | from->args[2] | from->args[3]))
		return polls_nothing(number, from);
	if (from->args[3] || (from->args[1] && from->args[2]))
		return POLLS_OTHER;
	if (count <= WORD_BITS) {
		memory->address = from->args[1] ?: from->args[2];
		memory->words = 1;
	}
	return 0;
}

/* A call's poll: 1 + the descriptor that it is for, with POLLS_OUTPUT; POLLS_PEERS; POLLS_OTHER; POLLS_NOTHING; 0: it does not
 * poll, or that is not known. Where `memory` has an address, its words tell.
 */
static __always_inline __u32 polled_by_arguments(__u64 number, const struct call_arguments *from, struct poll_memory *memory)
{
	memory->address = memory->words = 0;
	if (is_poll(number))
		return array_by_arguments(number, from, memory);
	return is_select(number) ? sets_by_arguments(number, from, memory) : 0;
}

/* An array's entry of no descriptor. */
#define NO_ENTRY 0xffffffffULL

/* Makes entries of an array of an fd_set's. False: there are too many. */
static __always_inline bool array_of_bits(__u64 words[MOST_POLLED], __u64 bits, __u32 count, __u64 events)
{
	if (!count || count > WORD_BITS)
		return false;
	bits &= ~0ULL >> (WORD_BITS - count);
#pragma unroll
	for (__u32 i = 0; i < MOST_POLLED; i++) {
		/* Below the lowest bit there are as many as its number is. */
		words[i] = bits ? __builtin_popcountll((bits & -bits) - 1) | events << 32 : NO_ENTRY;
		bits &= bits - 1;
	}
	return !bits;
}

enum polled_kind {
	/* It may be what the thread has nothing to do without. */
	POLLED_WORK,
	/* Another thread ends the poll by it. */
	POLLED_WAKEUP,
	/* Its thread's peer, to whom it sent something last. */
	POLLED_PEER,
};

/* Above 0: the thread's end of a TCP connection has sent something last, or nothing has come yet; below: its peer. Ticks are 1 to 10 ms
 * long: 0 where both fell into one.
 */
static __always_inline __s32 last_word(struct sock *sock)
{
	struct tcp_sock *tcp = (void *)sock;
	struct inet_connection_sock *received = (void *)sock;

	if (!BPF_CORE_READ(tcp, bytes_received))
		return 1;
	if (!BPF_CORE_READ(tcp, bytes_sent))
		return -1;
	return (__s32)(BPF_CORE_READ(tcp, lsndtime) - BPF_CORE_READ(received, icsk_ack.lrcvtime));
}

/* A peer that had the last word owes nothing. Who was answered and asks again within a tick is due an answer, and is taken for the one
 * who was answered at once and asks no more.
 */
static __always_inline bool is_owed(struct sock *sock)
{
	return BPF_CORE_READ(sock, sk_protocol) != IPPROTO_TCP || last_word(sock) >= 0;
}

/* Both ends of a pipe, or of a pair of sockets, are under numbers in a row. */
static __always_inline bool is_other_end(__u64 files, __u32 fd, struct file *file)
{
	struct file *other = listed_file((struct files_struct *)files, fd);
	struct unix_sock *peer;

	if (file_type_of(file) == TYPE_FIFO)
		return BPF_CORE_READ(other, f_inode) == BPF_CORE_READ(file, f_inode);
	peer = unix_peer_of(sock_of(file));
	return peer && file_type_of(other) == TYPE_SOCKET && (struct sock *)peer == sock_of(other);
}

/* Not static: the verifier goes through it once, not for each of its callers. */
__noinline __u32 polled_kind(__u64 files, __u32 fd, __u32 for_output)
{
	struct file *file = listed_file((struct files_struct *)files, fd);
	__u8 type = file_type_of(file);
	struct sock *sock;

	if (type == TYPE_SOCKET) {
		sock = sock_of(file);
		if (has_internet_peer(sock))
			return !was_accepted(file) && (for_output || is_owed(sock)) ? POLLED_PEER : POLLED_WORK;
	}
	if (for_output)
		return POLLED_WORK;
	if (!type)
		return anonymous_type_of(file) == FILE_EVENTFD ? POLLED_WAKEUP : POLLED_WORK;
	if (type != TYPE_SOCKET && type != TYPE_FIFO)
		return POLLED_WORK;
	return is_other_end(files, fd + 1, file) || (fd && is_other_end(files, fd - 1, file)) ? POLLED_WAKEUP : POLLED_WORK;
}

/* The peer that an answer is due from counts among several, which are looked at if `among`, where there is nothing else beside it but
 * what wakes a thread up.
 */
static __always_inline __u32 polled_in_array(struct task_struct *task, __u32 nothing, const __u64 words[MOST_POLLED], bool among)
{
	__u64 files = (__u64)BPF_CORE_READ(task, files), only = NO_ENTRY;
	__u32 count = 0, peer = 0;

#pragma unroll
	for (__u32 i = 0; i < MOST_POLLED; i++) {
		if ((__s32)words[i] < 0)
			continue;
		only = words[i];
		count++;
	}
	if (!count)
		return nothing;
	if (count == 1 && only >> 32 & (POLL_INPUT | POLL_OUTPUT))
		return ((__u32)only + 1) | (only >> 32 & POLL_OUTPUT ? POLLS_OUTPUT : 0);
	if (count == 1 || !among)
		return POLLS_OTHER;
#pragma unroll
	for (__u32 i = 0; i < MOST_POLLED; i++) {
		__u32 kind = POLLED_WAKEUP;

		if ((__s32)words[i] >= 0)
			kind = polled_kind(files, words[i], words[i] >> 32 & POLL_OUTPUT);
		if (kind == POLLED_WORK)
			return POLLS_OTHER;
		if (kind == POLLED_PEER)
			peer = peer ? POLLS_PEERS : words[i] + 1;
	}
	return peer ?: POLLS_OTHER;
}

/* The answer that polled_by_arguments() leaves to the words. Those that it did not ask for are of no descriptor. */
static __always_inline __u32 polled_by_words(struct task_struct *task, __u64 number, const struct call_arguments *from,
					     const __u64 words[MOST_POLLED], bool among)
{
	__u64 array[MOST_POLLED];

	if (is_poll(number)) {
#pragma unroll
		for (__u32 i = 0; i < MOST_POLLED; i++)
			array[i] = i < (__u32)from->args[1] ? words[i] : NO_ENTRY;
	} else if (!array_of_bits(array, words[0], from->args[0], from->args[1] ? POLL_INPUT : POLL_OUTPUT)) {
		return POLLS_OTHER;
	}
	return polled_in_array(task, polls_nothing(number, from), array, among);
}

/* The poll of the task that is current. */
static __always_inline __u32 polled_in_call(struct task_struct *task, __u64 number, const struct call_arguments *from, bool among)
{
	struct poll_memory memory;
	__u32 polled = polled_by_arguments(number, from, &memory);
	__u64 words[MOST_POLLED] = {}, bytes = memory.words * sizeof(*words);

	/* Else 5.10's verifier does not see the bound. */
	barrier_var(bytes);
	if (!memory.address || bytes > sizeof(words) || bpf_probe_read_user(words, bytes, (void *)memory.address))
		return polled;
	return polled_by_words(task, number, from, words, among);
}

#endif
