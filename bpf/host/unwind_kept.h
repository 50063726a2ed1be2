/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* unwind_kept.h: what becomes of stacks that were walked, who may walk, and what helpers make of old kernels; behind unwind.c. */
#ifndef __HOST_UNWIND_KEPT_H__
#define __HOST_UNWIND_KEPT_H__

static bool host_ring_is_full;
static struct stack_record host_sent;
static __u64 host_sent_bytes, host_sent_flags;

/* `unread`: bytes in the ring that user space has not read yet. */
void host_ring(bool is_full, __u64 unread)
{
	host_ring_is_full = is_full;
	host_unread = unread;
}

static long host_output(const void *record, __u64 bytes, __u64 flags)
{
	if (bytes > sizeof(host_sent) || host_sent_bytes)
		__builtin_abort();
	if (host_ring_is_full)
		return -11;
	__builtin_memcpy(&host_sent, record, bytes);
	host_sent_bytes = bytes;
	host_sent_flags = flags;
	return 0;
}

/* The record that was sent last, once, with its length in bytes and its flags. False: none. */
bool host_take_sent(struct stack_record *to, __u64 told[2])
{
	bool sent = host_sent_bytes;

	__builtin_memcpy(to, &host_sent, host_sent_bytes);
	told[0] = host_sent_bytes;
	told[1] = host_sent_flags;
	host_sent_bytes = 0;
	return sent;
}

static const __u64 *host_kernel_addresses;
static long host_kernel_bytes;

static long host_get_stack(void *to)
{
	if (host_kernel_bytes > 0)
		__builtin_memcpy(to, host_kernel_addresses, host_kernel_bytes);
	return host_kernel_bytes;
}

/* `bytes` as the kernel's walk returns them: negative, an error. */
__u64 host_kernel_stack(__u32 slot, const __u64 *addresses, long bytes)
{
	host_kernel_addresses = addresses;
	host_kernel_bytes = bytes;
	return kernel_stack(NULL, slot, scratch_at(slot));
}

/* Ring full, table full, not walked, cut. */
void host_lost(__u64 told[4])
{
	told[0] = stack_losses.ring_full;
	told[1] = stack_losses.table_full;
	told[2] = stack_losses.unwalked;
	told[3] = stack_losses.truncated;
}

/* The scratch's number, negative: none. It is the caller's. */
int host_claim(void)
{
	__u32 slot;
	struct stack_scratch *scratch = claim_scratch(&slot);

	if (scratch && scratch != scratch_at(slot))
		__builtin_abort();
	return scratch ? (int)slot : -1;
}

void host_release(__u32 slot)
{
	release_scratch(scratch_at(slot));
}

/* Stacks left out so far, of one that is wanted now, with and without a budget that is nearly used up. */
__u64 host_leaves_out(bool is_short, bool *left_out)
{
	without_stacks = is_short;
	*left_out = leaves_out_stack();
	return stacks_left_out;
}

/* A call's arguments, from what the thread entered the kernel with. */
void host_arguments(struct task_struct *task, bool compat, __u64 told[6])
{
	struct call_arguments arguments;

	arguments_of(user_regs_of(task), compat, &arguments);
	__builtin_memcpy(told, arguments.args, sizeof(arguments.args));
}

/* Answers about registers: goes on at any instruction, by the saved ones and by a copy; is a 32-bit program's; ip, sp, bp. */
void host_registers_say(struct task_struct *task, __u64 told[6])
{
	const struct pt_regs *saved = user_regs_of(task);

	told[0] = saved_goes_on_anywhere(saved);
	told[1] = goes_on_anywhere(saved, &host_given);
	told[2] = saved_is_compat(saved);
	told[3] = saved_ip(saved);
	told[4] = saved_sp(saved);
	told[5] = saved_fp(saved);
}

#endif
