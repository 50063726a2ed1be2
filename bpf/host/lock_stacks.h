/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lock_stacks.h: stands for stacks.bpf.h, where a stack is a number: the place where its thread is, which a test decides.
 *
 * Everything that is interned gets an id, and its addresses are kept.
 */
#ifndef __HOST_LOCK_STACKS_H__
#define __HOST_LOCK_STACKS_H__

#include "no_stacks.h"
#include "stack_limit.bpf.h"
#undef user_stack
#undef kernel_stack
#undef intern_stack
#undef intern_kernel_stack
#undef bpf_get_task_stack
#undef bpf_get_current_comm

/* Numbers that no interned stack has as its id. */
#define HOST_USER_STACK (1ULL << 40)
#define HOST_KERNEL_STACK (1ULL << 41)
#define HOST_RECORDS (1 << 16)

/* Place of whoever is current, by the test's word. */
static __u64 host_place;
/* Scratches are in use. */
static bool host_is_taken;
static __s64 host_claims;

struct host_record {
	__u64 addresses[5];
	__u32 depth;
	__u32 kind;
	__u32 tgid;
	__u32 pad;
};

static struct host_record host_records[HOST_RECORDS];
static __u32 host_recorded;

static inline __u64 intern_stack(__u32 slot, __u64 space, bool urgent)
{
	const struct stack_record *record = &scratch_at(slot)->record;
	struct host_record made = { .depth = record->depth, .kind = record->kind, .tgid = record->tgid };
	__u32 at = 0;

	__builtin_memcpy(made.addresses, record->addresses, sizeof(__u64) * (record->depth > 5 ? 5 : record->depth));
	while (at < host_recorded && __builtin_memcmp(&host_records[at], &made, sizeof(made)))
		at++;
	host_records[at] = made;
	host_recorded += at == host_recorded;
	return at + 1;
}

#define user_stack(slot, scratch, task, tgid) (HOST_USER_STACK + host_place)
#define kernel_stack(ctx, slot, scratch) (HOST_KERNEL_STACK + host_place)
#define intern_kernel_stack(slot, scratch, bytes) ((bytes) > 0 ? (scratch)->record.addresses[0] : 0)
#define bpf_get_task_stack(task, addresses, bytes, flags) host_stack_of(task, addresses)
#define bpf_get_current_comm(to, bytes) __builtin_memcpy(to, ((struct task_struct *)host_current())->comm, bytes)

/* A sleeper's stack is its own. */
static inline long host_stack_of(const struct task_struct *task, __u64 *addresses)
{
	addresses[0] = HOST_KERNEL_STACK - task->pid;
	return sizeof(addresses[0]);
}

static inline struct stack_scratch *claim_scratch(__u32 *slot)
{
	*slot = 0;
	if (host_is_taken)
		return NULL;
	host_claims++;
	return scratch_at(0);
}

static inline void release_scratch(struct stack_scratch *scratch)
{
	host_claims--;
}

void host_at(__u64 place, bool is_taken)
{
	host_place = place;
	host_is_taken = is_taken;
}

/* Numbers of what was interned under an id; all 0: nothing. */
void host_interned(__u64 id, __u64 numbers[8])
{
	const struct host_record *record = &host_records[id - 1];

	__builtin_memset(numbers, 0, 8 * sizeof(*numbers));
	if (id - 1 >= host_recorded)
		return;
	__builtin_memcpy(numbers, record->addresses, sizeof(record->addresses));
	numbers[5] = record->depth;
	numbers[6] = record->kind;
	numbers[7] = record->tgid;
}

#endif
