/* SPDX-License-Identifier: MIT */
/* x86_code.bpf.h: what the instructions say of a frame that has neither a table nor a frame pointer of its own.
 *
 * Code made at run time has no .eh_frame, and keeps a frame pointer only between its prologue and its epilogue; the
 * trampolines of CPython 3.12 and 3.13 (Objects/asm_trampoline.S) keep none at all. Where what runs next is an epilogue,
 * or what comes next is the prologue, the return address is where these instructions look for it. Nothing is guessed: they
 * are recognised whole, and a call must precede the address that they return to.
 */
#ifndef __MACHINE_X86_CODE_BPF_H__
#define __MACHINE_X86_CODE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The frame pointer is saved below the return address. */
#define CODE_SAVED_BP 1

/* mov %rsp,%rbp, in both encodings. */
static __always_inline bool is_mov_sp_to_bp(__u64 code)
{
	return (code & 0xffffff) == 0xe58948 || (code & 0xffffff) == 0xec8b48;
}

/* Without what is in front of it and leaves stack and frame pointer alone: cmp $imm8,%r64 and a conditional jump. */
static __always_inline __u64 behind_condition(__u64 code)
{
	if ((code & 0xf8ffff) == 0xf88348)
		code >>= 32;
	if ((code & 0xf0) == 0x70)
		return code >> 16;
	return (code & 0xf0ff) == 0x800f ? code >> 48 : code;
}

/* Whether nothing of the frame is made yet, or nothing is left of it. */
static __always_inline bool is_outside_frame(__u64 code)
{
	/* endbr64: only where a function begins. */
	if ((__u32)code == 0xfa1e0ff3)
		return true;
	/* HotSpot: cmp disp32(%r15),%rsp; ja: its poll before a return; mov %eax,disp32(%rsp); push %rbp: its stack check. */
	if ((code & 0xff00000000ffffff) == 0x0f00000000a73b49 || (code & 0xff00000000ffffff) == 0x5500000000248489)
		return true;
	/* V8: mov disp8(%rcx),%rbx; testb $1,disp8(%rbx); jne: whether it was deoptimized. */
	if ((code & 0xff00ffff00ffffff) == 0x010043f600598b48 || (code & 0xffffff00ffff) == 0x850f010043f6)
		return true;
	/* push %rbp and the first byte of mov %rsp,%rbp */
	return (behind_condition(code) & 0xffff) == 0x4855;
}

/* Bytes to leave by, whole words only. */
static __always_inline __u32 exit_by(__u32 bytes, __u32 flags)
{
	return bytes & 7 ? 0 : bytes + flags;
}

/* HotSpot's frames of functions that call nothing: sub $imm32,%rsp; mov %rbp,disp8(%rsp); mov %rsp,%rbp; add $imm8,%rbp.
 * Bytes as below; 0: another instruction.
 */
static __always_inline __u32 exit_of_hotspot_leaf(__u64 code)
{
	/* A small number that takes four bytes is nobody else's. */
	if ((code & 0xffffff80ffffff) == 0xec8148)
		return 8;
	if ((code & 0xffffff80ffffffff) == 0xec8b4800246c8948)
		return exit_by((code >> 32 & 0xff) + 16, 0);
	if ((code & 0x80ffffffffffff) == 0xc58348ec8b48)
		return exit_by((code >> 48 & 0xff) + 16, CODE_SAVED_BP);
	if ((code & 0x80ffffff) == 0xc58348)
		return exit_by((code >> 24 & 0xff) + 16, CODE_SAVED_BP);
	return 0;
}

/* By what leaves a frame: add $imm,%rsp; pop %rbp; ret. */
static __always_inline __u32 exit_of_epilogue(__u64 code)
{
	__u32 popped = 0, flags = 0;

	if ((code & 0x80ffffff) == 0xc48348) {
		popped = code >> 24 & 0xff;
		code >>= 32;
	} else if ((code & 0xff000000ffffff) == 0xc48148) {
		popped = code >> 24;
		code >>= 56;
	}
	if ((code & 0xff) == 0x5d) {
		popped += 8;
		flags = CODE_SAVED_BP;
		code >>= 8;
	}
	/* Also with $imm16. */
	return (code & 0xff) == 0xc3 || (code & 0xff) == 0xc2 ? exit_by(popped + 8, flags) : 0;
}

/* Bytes from rsp to behind the return address, CODE_SAVED_BP added; 0: unknown. `code`: eight bytes at ip. */
static __always_inline __u32 exit_of_code(__u64 code, __u32 exact, __u8 before)
{
	__u32 exit = 0;

	if (exact && is_outside_frame(code))
		return 8;
	if (exact && before == 0x55 && is_mov_sp_to_bp(code))
		return 16 + CODE_SAVED_BP;
	if (exact)
		exit = exit_of_hotspot_leaf(code);
	return exit ?: exit_of_epilogue(behind_condition(code));
}

/* ff /2 with an operand of this mode, and no SIB byte. */
static __always_inline bool is_call_by(__u32 code, __u32 mode)
{
	return (code & 0xf8ff) == (mode << 14 | 0x10ff) && (code >> 8 & 7) != 4;
}

/* Whether the eight bytes before a return address end in a call: e8 rel32, or ff /2 with an operand of this length. */
static __always_inline bool ends_in_call(__u64 code)
{
	__u32 two = code >> 48, three = code >> 40 & 0xffff, four = code >> 32 & 0xffff, six = code >> 16 & 0xffff,
	      seven = code >> 8 & 0xffff;

	if ((code >> 24 & 0xff) == 0xe8)
		return true;
	/* A register or what it points to; disp8 or SIB; both; disp32; SIB and disp32. */
	return (two & 0xf8ff) == 0xd0ff || (is_call_by(two, 0) && two != 0x15ff) || is_call_by(three, 1) || three == 0x14ff ||
	       four == 0x54ff || is_call_by(six, 2) || six == 0x15ff || seven == 0x94ff || seven == 0x14ff;
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
