/* SPDX-License-Identifier: MIT */
/* arm64_step.bpf.h: what is arm64's own in a step from a user frame to its caller.
 *
 * A call leaves the return address in x30. Functions that call others save it with x29, as a frame record, which may lie
 * anywhere in the frame. Pointer authentication (PAC) signs return addresses with bits that are no part of the address.
 */
#ifndef __MACHINE_ARM64_STEP_BPF_H__
#define __MACHINE_ARM64_STEP_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "machine/arm64_code.bpf.h"
#include "unwind_state.bpf.h"

/* The return address by a rule's slot: in x30; beside the saved x29, which is at CFA + fp_offset; at CFA + fp_offset itself,
 * where x29 is not saved. Others are words below the CFA.
 */
#define RA_IN_LR 0
#define RA_BESIDE_FP 62
#define RA_AT_FP_OFFSET 63
/* Frames are too large for 16 bits of bytes. */
#define FP_OFFSET(rule) ((__s64)(rule).fp_offset * 8)

/* mov x8, #__NR_rt_sigreturn; svc #0: a signal handler returns to these. The kernel's have no table since 87676cfca141 (5.8). */
#define SIGNAL_RETURN 0xd4000001d2801168ULL
/* Offset in the kernel's struct rt_sigframe, from sp in these: x29, x30, sp and pc are in a row. */
#define SIGFRAME_FP (312 + 29 * 8)
#define SIGFRAME_WORDS 4

/* Before the first step. */
static __always_inline void begin_walk(struct unwind *at)
{
	at->followed.lr = user_lr(&at->regs);
	at->followed.sp_is_bound = 0;
}

/* Beside pc, sp and x29 nothing is known of the caller. */
static __always_inline void forget_registers(struct unwind *at)
{
	at->ip &= code_mask;
	at->followed.lr = 0;
}

/* Behind a step by the frame pointer: the record says where it is and not how far its frame goes. */
static __always_inline void follow_frame_record(struct unwind *at)
{
	forget_registers(at);
	at->followed.sp_is_bound = 1;
}

/* A register by its DWARF number; 0: it is not known in this frame. */
static __always_inline __u64 known_register(const struct unwind *at, __u32 number)
{
	return at->leaf ? leaf_register(at, number) : 0;
}

/* The CFA by sp; if that is not known, x29 points to the record of a function that has one. */
static __always_inline __u64 cfa_by_sp(const struct unwind *at, struct unwind_rule rule)
{
	if (!at->followed.sp_is_bound)
		return at->sp + rule.cfa_offset;
	return RULE_SLOT(rule) == RA_BESIDE_FP ? at->bp - FP_OFFSET(rule) : 0;
}

/* Callers are further up, but for those of functions without a frame, whose x30 is known once: this ends every loop that
 * memory could hold.
 */
static __always_inline bool leads_on(const struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	return cfa > at->sp || (cfa == at->sp && RULE_SLOT(rule) == RA_IN_LR);
}

/* Fetches the return address if it is in memory. */
static __always_inline bool read_return_address(struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	__u64 place = cfa - 8 * RULE_SLOT(rule);

	if (RULE_SLOT(rule) == RA_AT_FP_OFFSET)
		place = cfa + FP_OFFSET(rule);
	return read_user(&at->ip, sizeof(at->ip), place);
}

/* Fetches the return address and, where it was saved, the caller's frame pointer: with one read if they are together. */
static __always_inline int leave_frame(struct unwind *at, struct unwind_rule rule, __u64 cfa)
{
	if (RULE_SLOT(rule) == RA_BESIDE_FP) {
		if (!read_user(at->frame, 2 * sizeof(__u64), cfa + FP_OFFSET(rule)))
			return STACK_END_UNREADABLE;
		at->bp = at->frame[0];
		at->ip = at->frame[1];
	} else {
		if (RULE_SLOT(rule) == RA_IN_LR) {
			if (!at->followed.lr)
				return STACK_END_UNSUPPORTED;
			at->ip = at->followed.lr;
		} else if (!read_return_address(at, rule, cfa)) {
			return STACK_END_UNREADABLE;
		}
		if (RULE_FP(rule) == FP_AT_CFA && !read_user(&at->bp, sizeof(at->bp), cfa + FP_OFFSET(rule)))
			return STACK_END_UNREADABLE;
		/* Neither a frame nor the mark of the outermost. */
		if (RULE_FP(rule) == FP_LOST)
			at->bp = 1;
	}
	forget_registers(at);
	at->followed.sp_is_bound = 0;
	at->sp = cfa;
	at->exact = at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

static __always_inline int step_out_of_signal(struct unwind *at)
{
	if (!read_user(at->frame, SIGFRAME_WORDS * sizeof(__u64), at->sp + SIGFRAME_FP))
		return STACK_END_UNREADABLE;
	at->bp = at->frame[0];
	at->followed.lr = at->frame[1];
	at->followed.sp_is_bound = 0;
	at->sp = at->frame[2];
	at->ip = at->frame[3];
	at->exact = 1;
	at->leaf = 0;
	return at->ip ? STEP_ON : STACK_END_ROOT;
}

/* True if the two instructions of a signal's return are at an address, or one or both of them before it. Of its own, so that the
 * verifier walks it once.
 */
__noinline bool is_in_signal_return(__u64 ip)
{
	__u64 code;

	for (__u64 passed = 0; passed <= sizeof(code); passed += sizeof(__u32))
		if (!bpf_probe_read_user(&code, sizeof(code), (void *)(ip - passed)) && code == SIGNAL_RETURN)
			return true;
	return false;
}

/* True if a signal handler returns here, or the thread is on its way from there into the kernel, which puts sp back last but one.
 * Nobody else returns to code without a table or with the return address in x30.
 */
static __always_inline bool is_signal_return(const struct unwind *at, struct unwind_rule rule)
{
	__u64 code;

	if (at->exact)
		return rule.cfa == CFA_UNCOVERED && is_in_signal_return(at->ip);
	if (rule.cfa != CFA_UNCOVERED && RULE_SLOT(rule) != RA_IN_LR)
		return false;
	return read_user(&code, sizeof(code), at->ip) && code == SIGNAL_RETURN;
}

/* The rule of a frame without a table. The frame pointer is right in a caller, and in a leaf that neither makes nor leaves its frame:
 * what the code does next says so. CFA_UNCOVERED: it does not.
 */
static __always_inline struct unwind_rule rule_by_code(const struct unwind *at, struct unwind_rule rule)
{
	__u32 exit = 0;

	if (is_signal_return(at, rule)) {
		rule.cfa = CFA_SIGNAL;
		return rule;
	}
	if (rule.cfa == CFA_UNCOVERED && at->exact && unwind_mode == UNWIND_AUTO && !at->compat)
		exit = find_exit(at->ip);
	if (!exit || (exit == CODE_IN_LR && !is_behind_call(at->followed.lr & code_mask)))
		return rule;
	rule.cfa = CFA_SP;
	if (exit & CODE_HAS_RECORD) {
		rule.cfa_offset = exit & ~7U;
		rule.fp_offset = -(__s16)(exit >> 3);
		rule.fp = FP_AT_CFA | RA_BESIDE_FP << 2;
	}
	return rule;
}

#endif
