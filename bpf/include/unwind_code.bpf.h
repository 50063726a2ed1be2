/* SPDX-License-Identifier: MIT */
/* unwind_code.bpf.h: what the instructions say of a frame that has neither a table nor a frame pointer of its own.
 *
 * Code made at run time has no .eh_frame, and keeps a frame pointer only between its prologue and its epilogue; the
 * trampolines of CPython 3.12 and 3.13 (Objects/asm_trampoline.S) keep none at all. Where what runs next is an epilogue,
 * or what comes next is the prologue, the return address is where these instructions look for it. Nothing is guessed: they
 * are recognised whole, and a call must precede the address that they return to.
 */
#ifndef __UNWIND_CODE_BPF_H__
#define __UNWIND_CODE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The frame pointer is saved below the return address. */
#define CODE_SAVED_BP 1

/* push %rbp; mov %rsp,%rbp, in both encodings of the mov. */
static __always_inline bool is_mov_sp_to_bp(__u64 code)
{
	return (code & 0xffffff) == 0xe58948 || (code & 0xffffff) == 0xec8b48;
}

/* Bytes from rsp to behind the return address, CODE_SAVED_BP added; 0: unknown. `code`: eight bytes at ip. */
static __always_inline __u32 exit_of_code(__u64 code, __u32 exact, __u8 before)
{
	__u32 popped = 0, saved = 0;

	if (exact) {
		/* endbr64: only where a function begins. */
		if ((__u32)code == 0xfa1e0ff3)
			return 8;
		if ((code & 0xff) == 0x55 && is_mov_sp_to_bp(code >> 8))
			return 8;
		if (before == 0x55 && is_mov_sp_to_bp(code))
			return 16 + CODE_SAVED_BP;
	}
	if ((code & 0x80ffffff) == 0x00c48348) {
		/* add $imm8,%rsp */
		popped = code >> 24 & 0xff;
		code >>= 32;
	} else if ((code & 0xffffff) == 0xc48148) {
		/* add $imm32,%rsp */
		popped = code >> 24;
		code >>= 56;
		if (popped >> 24)
			return 0;
	}
	if ((code & 0xff) == 0x5d) {
		/* pop %rbp */
		saved = 8 + CODE_SAVED_BP;
		code >>= 8;
	}
	/* ret, ret $imm16 */
	if (popped & 7 || ((code & 0xff) != 0xc3 && (code & 0xff) != 0xc2))
		return 0;
	return popped + saved + 8;
}

/* Whether the eight bytes before a return address end in a call: e8 rel32, or ff /2 with an operand of this length. */
static __always_inline bool ends_in_call(__u64 code)
{
	__u32 two = code >> 48, three = code >> 40 & 0xffff, four = code >> 32 & 0xffff, six = code >> 16 & 0xffff,
	      seven = code >> 8 & 0xffff;

	if ((code >> 24 & 0xff) == 0xe8)
		return true;
	/* A register or what it points to; disp8 or SIB; both; disp32; SIB and disp32. */
	return (two & 0xf8ff) == 0xd0ff || (two & 0xf8ff) == 0x10ff || (three & 0xf8ff) == 0x50ff || three == 0x14ff ||
	       four == 0x54ff || (six & 0xf8ff) == 0x90ff || six == 0x15ff || seven == 0x94ff || seven == 0x14ff;
}

/* As exit_of_code, for the code at `ip`, when there is a caller. Of its own, so that the verifier walks it once. */
__noinline __u32 find_exit(__u64 ip, __u64 sp, __u32 exact)
{
	/* Not beyond the page that runs: the next one may not be there. */
	__u64 last = (ip | 4095) - 7, from = ip < last ? ip : last;
	__u64 code, caller;
	__u8 before = 0;
	__u32 exit;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)from))
		return 0;
	code >>= (ip - from & 7) * 8;
	if (exact && is_mov_sp_to_bp(code) && bpf_probe_read_user(&before, sizeof(before), (void *)(ip - 1)))
		return 0;
	exit = exit_of_code(code, exact, before);
	if (!exit)
		return 0;
	if (bpf_probe_read_user(&caller, sizeof(caller), (void *)(sp + (exit & ~7U) - 8)) ||
	    bpf_probe_read_user(&code, sizeof(code), (void *)(caller - 8)))
		return 0;
	return ends_in_call(code) ? exit : 0;
}

#endif
