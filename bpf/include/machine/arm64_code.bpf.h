/* SPDX-License-Identifier: MIT */
/* arm64_code.bpf.h: what the instructions say of a frame that has no table and is about to be made or left.
 *
 * Code made at run time has no .eh_frame. Behind its prologue x29 points to the frame record; before it, and behind the
 * epilogue, the return address is in x30. The instructions are recognised whole, and a call must precede the return address.
 */
#ifndef __MACHINE_ARM64_CODE_BPF_H__
#define __MACHINE_ARM64_CODE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The frame record is at sp, and was not made the frame pointer yet, or is no longer. Beside the bytes of its frame. */
#define CODE_HAS_RECORD 1
/* The return address is in x30. */
#define CODE_IN_LR 2

#define CODE_MOV_SP_TO_FP 0x910003fd
#define CODE_RET 0xd65f03c0

/* stp x29, x30, [sp, #imm]! */
static __always_inline bool is_push_of_record(__u32 code)
{
	return (code & 0xffc07fff) == 0xa9807bfd;
}

/* ldp x29, x30, [sp], #imm */
static __always_inline bool is_pop_of_record(__u32 code)
{
	return (code & 0xffc07fff) == 0xa8c07bfd;
}

/* Bytes that such an instruction moves sp by, upwards or downwards. */
static __always_inline __u32 bytes_of_record(__u32 code)
{
	__s32 words = (__s32)(code << 10) >> 25;

	return (words < 0 ? -words : words) * 8;
}

/* True if nothing of the frame is made yet, or nothing is left of it. */
static __always_inline bool is_outside_frame(__u32 code)
{
	switch (code) {
	/* paciasp, pacibsp, bti c: where a function begins. */
	case 0xd503233f:
	case 0xd503237f:
	case 0xd503245f:
	/* autiasp, autibsp, ret, retaa, retab: where it ends. */
	case 0xd50323bf:
	case 0xd50323ff:
	case CODE_RET:
	case 0xd65f0bff:
	case 0xd65f0fff:
		return true;
	default:
		return is_push_of_record(code);
	}
}

/* bl, and blr in each of its forms. */
static __always_inline bool is_call(__u32 code)
{
	return code >> 26 == 0x25 || (code & 0xfefff000) == 0xd63f0000;
}

/* CODE_IN_LR; or the bytes from sp to the caller's, CODE_HAS_RECORD added; 0: unknown. Of its own, so that the verifier
 * walks it once.
 */
__noinline __u32 find_exit(__u64 ip)
{
	__u32 code, before;

	if (ip & 3 || bpf_probe_read_user(&code, sizeof(code), (void *)ip))
		return 0;
	if (is_outside_frame(code))
		return CODE_IN_LR;
	if (is_pop_of_record(code))
		return bytes_of_record(code) + CODE_HAS_RECORD;
	if (code != CODE_MOV_SP_TO_FP || bpf_probe_read_user(&before, sizeof(before), (void *)(ip - 4)))
		return 0;
	return is_push_of_record(before) ? bytes_of_record(before) + CODE_HAS_RECORD : 0;
}

/* True if a call precedes a return address. */
__noinline bool is_behind_call(__u64 ip)
{
	__u32 code;

	return !(ip & 3) && !bpf_probe_read_user(&code, sizeof(code), (void *)(ip - 4)) && is_call(code);
}

#endif
