/* SPDX-License-Identifier: MIT */
/* polls.bpf.h: the descriptor that a thread polls alone. It is in the thread's memory, which can be read of a task that is current only. */
#ifndef __POLLS_BPF_H__
#define __POLLS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "waits.bpf.h"

/* include/uapi/asm-generic/poll.h */
#define POLLOUT 4
/* Descriptors in a word of an fd_set. */
#define WORD_BITS 64

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

static __always_inline __u32 array_by_arguments(const struct call_arguments *from, __u64 *memory)
{
	if (!from->args[1])
		return POLLS_NOTHING;
	if (from->args[1] != 1)
		return POLLS_OTHER;
	*memory = from->args[0];
	return 0;
}

/* A struct pollfd: the descriptor, and above it the events. */
static __always_inline __u32 array_by_word(__u64 word)
{
	return (((__u32)word + 1) & ~POLLS_OTHER) | (word >> 32 & POLLOUT ? POLLS_OTHER : 0);
}

/* Of sets with descriptors beyond the first word nothing is known. */
static __always_inline __u32 sets_by_arguments(const struct call_arguments *from, __u64 *memory)
{
	__u32 count = from->args[0];

	if (!count || !(from->args[1] | from->args[2] | from->args[3]))
		return POLLS_NOTHING;
	if (from->args[2] | from->args[3])
		return POLLS_OTHER;
	if (count <= WORD_BITS)
		*memory = from->args[1];
	return 0;
}

/* The first word of an fd_set that has `count` descriptors. */
static __always_inline __u32 set_by_word(__u64 word, __u32 count)
{
	if (!count || count > WORD_BITS)
		return 0;
	word &= ~0ULL >> (WORD_BITS - count);
	if (!word)
		return POLLS_NOTHING;
	/* Below the only bit there are as many as its number is. */
	return word & (word - 1) ? POLLS_OTHER : 1 + __builtin_popcountll(word - 1);
}

/* 1 + the descriptor that a call polls alone; POLLS_OTHER beside it if that is for output, too, and alone if there are several;
 * POLLS_NOTHING; 0: it does not poll, or that is not known. Where `memory` is set, the word there tells.
 */
static __always_inline __u32 polled_by_arguments(__u64 number, const struct call_arguments *from, __u64 *memory)
{
	*memory = 0;
	if (is_poll(number))
		return array_by_arguments(from, memory);
	return is_select(number) ? sets_by_arguments(from, memory) : 0;
}

/* The same, by that word. */
static __always_inline __u32 polled_by_word(__u64 number, const struct call_arguments *from, __u64 word)
{
	return is_poll(number) ? array_by_word(word) : set_by_word(word, from->args[0]);
}

/* The same of the task that is current. */
static __always_inline __u32 polled_in_call(__u64 number, const struct call_arguments *from)
{
	__u64 memory, word;
	__u32 polled = polled_by_arguments(number, from, &memory);

	if (!memory || bpf_probe_read_user(&word, sizeof(word), (void *)memory))
		return polled;
	return polled_by_word(number, from, word);
}

#endif
