//! What the instructions say of a frame that has neither a rule nor a frame pointer of its own; as
//! `bpf/include/machine/x86_code.bpf.h`, which see.

use crate::rule::{Cfa, FpMode, Rule};

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

const PUSH_BP: u8 = 0x55;

/// The rule for a frame at `ip`, when what runs next is an epilogue, or a prologue not yet done, and a call precedes the
/// return address that it gives. `exact`: the frame is at `ip`, and does not return to it.
pub(super) fn rule(
    ip: u64,
    sp: u64,
    exact: bool,
    memory: impl Fn(u64) -> Option<u64>,
) -> Option<Rule> {
    let rule = by_code(ip, exact, &memory)?;
    let cfa = sp.wrapping_add_signed(rule.cfa_offset.into());
    let caller = memory(cfa.wrapping_sub(8))?;
    let before = memory(caller.wrapping_sub(8))?.to_le_bytes();
    ends_in_call(before).then_some(rule)
}

fn by_code(ip: u64, exact: bool, memory: impl Fn(u64) -> Option<u64>) -> Option<Rule> {
    // Not beyond the page that runs: the next one may not be there.
    let from = ip.min((ip | (PAGE - 1)) - 7);
    let code = (memory(from)? >> ((ip - from) * 8)).to_le_bytes();
    if exact {
        if is_outside_frame(code) {
            return Some(leaving(8, false));
        }
        if is_mov_sp_to_bp(code) && memory(ip.wrapping_sub(8))?.to_le_bytes()[7] == PUSH_BP {
            return Some(leaving(16, true));
        }
    }
    let leaf = if exact { hotspot_leaf(code) } else { None };
    let exit = leaf.or_else(|| epilogue(behind_condition(&code)));
    // Whole words only.
    exit.filter(|rule| rule.cfa_offset % 8 == 0)
}

/// The CFA is `bytes` above rsp; the caller's rbp may be saved below the return address.
fn leaving(bytes: i32, saved: bool) -> Rule {
    Rule {
        cfa: Cfa::Sp,
        cfa_offset: bytes,
        fp: if saved { FpMode::AtCfa } else { FpMode::Same },
        fp_offset: if saved { -16 } else { 0 },
        slot: 0,
    }
}

/// mov %rsp,%rbp, in both encodings.
fn is_mov_sp_to_bp(code: [u8; 8]) -> bool {
    matches!(code, [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..])
}

/// Without what is in front of it and leaves stack and frame pointer alone: cmp $imm8,%r64 and a conditional jump.
fn behind_condition(code: &[u8]) -> &[u8] {
    let code = match code {
        [0x48, 0x83, 0xf8..=0xff, _, rest @ ..] => rest,
        _ => code,
    };
    match code {
        [0x70..=0x7f, _, rest @ ..] | [0x0f, 0x80..=0x8f, _, _, _, _, rest @ ..] => rest,
        _ => code,
    }
}

/// Whether nothing of the frame is made yet, or nothing is left of it.
fn is_outside_frame(code: [u8; 8]) -> bool {
    match code {
        // endbr64: only where a function begins.
        [0xf3, 0x0f, 0x1e, 0xfa, ..] => true,
        // HotSpot: cmp disp32(%r15),%rsp; ja: its poll before a return.
        [0x49, 0x3b, 0xa7, .., 0x0f] => true,
        // HotSpot: mov %eax,disp32(%rsp); push %rbp: its stack check.
        [0x89, 0x84, 0x24, .., PUSH_BP] => true,
        // V8: mov disp8(%rcx),%rbx; testb $1,disp8(%rbx); jne: whether it was deoptimized.
        [0x48, 0x8b, 0x59, _, 0xf6, 0x43, _, 1] | [0xf6, 0x43, _, 1, 0x0f, 0x85, ..] => true,
        // push %rbp and the first byte of mov %rsp,%rbp
        _ => behind_condition(&code).starts_with(&[PUSH_BP, 0x48]),
    }
}

/// HotSpot's frames of functions that call nothing: sub $imm32,%rsp; mov %rbp,disp8(%rsp); mov %rsp,%rbp; add $imm8,%rbp.
fn hotspot_leaf(code: [u8; 8]) -> Option<Rule> {
    match code {
        // A small number that takes four bytes is nobody else's.
        [0x48, 0x81, 0xec, 0..0x80, 0, 0, 0, _] => Some(leaving(8, false)),
        [0x48, 0x89, 0x6c, 0x24, at @ 0..0x80, 0x48, 0x8b, 0xec] => {
            Some(leaving(i32::from(at) + 16, false))
        }
        [0x48, 0x8b, 0xec, 0x48, 0x83, 0xc5, at @ 0..0x80, _]
        | [0x48, 0x83, 0xc5, at @ 0..0x80, ..] => Some(leaving(i32::from(at) + 16, true)),
        _ => None,
    }
}

/// By what leaves a frame: add $imm,%rsp; pop %rbp; ret, also with $imm16.
fn epilogue(code: &[u8]) -> Option<Rule> {
    let (popped, rest) = match *code {
        [0x48, 0x83, 0xc4, bytes @ 0..0x80, ref rest @ ..] => (i32::from(bytes), rest),
        [0x48, 0x81, 0xc4, b0, b1, b2, 0, ref rest @ ..] => {
            (i32::from_le_bytes([b0, b1, b2, 0]), rest)
        }
        _ => (0, code),
    };
    match rest {
        [0xc2 | 0xc3, ..] => Some(leaving(popped + 8, false)),
        [0x5d, 0xc2 | 0xc3, ..] => Some(leaving(popped + 16, true)),
        _ => None,
    }
}

/// e8 rel32; or ff /2 of two to seven bytes, by the operand that makes it so long.
fn ends_in_call(before: [u8; 8]) -> bool {
    matches!(
        before,
        [.., 0xe8, _, _, _, _]
            | [.., 0xff, 0xd0..=0xd7 | 0x10..=0x13 | 0x16 | 0x17]
            | [.., 0xff, 0x50..=0x53 | 0x55..=0x57, _]
            | [.., 0xff, 0x14, _]
            | [.., 0xff, 0x54, _, _]
            | [.., 0xff, 0x15 | 0x90..=0x93 | 0x95..=0x97, _, _, _, _]
            | [.., 0xff, 0x14 | 0x94, _, _, _, _, _]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7fff_0000;
    const CALLER: u64 = 0x40_1000;

    /// Runs `rule` with these bytes at `ip`, and stack words that all return to a place behind `call`.
    fn found(ip: u64, bytes: &[u8], exact: bool, call: &[u8]) -> Option<(i32, bool)> {
        let memory = |address: u64| {
            if address >= STACK {
                return Some(CALLER);
            }
            if address == CALLER - 8 {
                let mut before = [0x90; 8];
                before[8 - call.len()..].copy_from_slice(call);
                return Some(u64::from_le_bytes(before));
            }
            // The page behind the code is not there.
            (address / PAGE == (address + 7) / PAGE).then_some(())?;
            let mut word = [0x90; 8];
            for (at, byte) in word.iter_mut().enumerate() {
                let index = (address + at as u64 + 1).checked_sub(ip);
                let index = index.map_or(usize::MAX, |index| index as usize);
                *byte = bytes.get(index).copied().unwrap_or(0x90);
            }
            Some(u64::from_le_bytes(word))
        };
        let rule = rule(ip, STACK, exact, memory)?;
        assert_eq!(rule.cfa, Cfa::Sp);
        Some((rule.cfa_offset, rule.fp == FpMode::AtCfa))
    }

    /// `before` is the byte in front of `ip`.
    fn exit(before: u8, code: &[u8], exact: bool) -> Option<(i32, bool)> {
        let mut bytes = vec![before];
        bytes.extend(code);
        bytes.resize(32, 0x90);
        found(0x1010, &bytes, exact, &[0xff, 0xd1])
    }

    #[test]
    fn the_trampoline_of_python_3_13() {
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08,
            0xc3,
        ];
        assert_eq!(exit(0xd1, &code[10..], false), Some((16, false)));
        assert_eq!(exit(0x90, &code, true), Some((8, false)));
        assert_eq!(exit(0xd1, &code[10..], true), Some((16, false)));
        assert_eq!(exit(0x08, &code[14..], true), Some((8, false)));
        assert_eq!(exit(0x90, &code[4..], true), None, "may be anywhere");
    }

    #[test]
    fn prologues_count_where_the_frame_is_and_not_where_it_returns_to() {
        for mov in [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]] {
            let code = [&[PUSH_BP][..], &mov].concat();
            assert_eq!(exit(0x90, &code, true), Some((8, false)));
            assert_eq!(exit(PUSH_BP, &code[1..], true), Some((16, true)));
            assert_eq!(exit(0x90, &code[1..], true), None);
            assert_eq!(exit(0x90, &code, false), None);
            assert_eq!(exit(PUSH_BP, &code[1..], false), None);
        }
        assert_eq!(exit(0x90, &[PUSH_BP, 0x90], true), None);
        assert_eq!(exit(0x90, &[0xf3, 0x0f, 0x1e, 0xfa], false), None);
    }

    /// At each of these offsets into `code` the frame is so.
    fn at_each(code: &[u8], expected: &[(usize, Option<(i32, bool)>)]) {
        for &(at, exit_there) in expected {
            let before = if at == 0 { 0x90 } else { code[at - 1] };
            assert_eq!(exit(before, &code[at..], true), exit_there, "byte {at:#x}");
        }
    }

    /// As HotSpot 17 compiled `static int leaf(int x) { return x * 3 + 1; }`.
    #[test]
    fn a_java_leaf() {
        let code = [
            0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8b, 0xec, 0x48,
            0x83, 0xc5, 0x10, 0x8b, 0xc6, 0xd1, 0xe0, 0x03, 0xc6, 0xff, 0xc0, 0x48, 0x83, 0xc4,
            0x10, 0x5d, 0x49, 0x3b, 0xa7, 0x40, 3, 0, 0, 0x0f, 0x87, 1, 0, 0, 0, 0xc3,
        ];
        let expected = [
            (0, Some((8, false))),
            (0x7, Some((0x20, false))),
            (0xc, Some((0x20, true))),
            (0xf, Some((0x20, true))),
            // Here the frame pointer is right.
            (0x13, None),
            (0x1b, None),
            (0x1f, None),
            (0x20, Some((8, false))),
            (0x27, Some((8, false))),
            (0x2d, Some((8, false))),
        ];
        at_each(&code, &expected);
        let check = [
            0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x8b, 0xec,
        ];
        let expected = [
            (0, Some((8, false))),
            (7, Some((8, false))),
            (8, Some((16, true))),
        ];
        at_each(&check, &expected);
    }

    /// As V8 of node 20 compiled a function of one argument.
    #[test]
    fn a_javascript_leaf() {
        let code = [
            0x48, 0x8b, 0x59, 0xf8, 0xf6, 0x43, 0x35, 0x01, 0x0f, 0x85, 0xb2, 0x72, 0xe4, 0x1f,
            0x55, 0x48, 0x89, 0xe5, 0x56, 0x57,
        ];
        let expected = [
            (0, Some((8, false))),
            (4, Some((8, false))),
            (8, Some((8, false))),
            (0xe, Some((8, false))),
            (0xf, Some((16, true))),
            (0x12, None),
        ];
        at_each(&code, &expected);
        let end = [
            0x48, 0x8b, 0xe5, 0x5d, 0x48, 0x83, 0xf9, 2, 0x7f, 3, 0xc2, 0x10, 0,
        ];
        let expected = [
            (0, None),
            (3, None),
            (4, Some((8, false))),
            (8, Some((8, false))),
            (10, Some((8, false))),
        ];
        at_each(&end, &expected);
    }

    #[test]
    fn epilogues() {
        let exit = |code: &[u8]| exit(0x90, code, false);
        assert_eq!(exit(&[0xc3]), Some((8, false)));
        assert_eq!(exit(&[0xc2, 8, 0]), Some((8, false)));
        assert_eq!(exit(&[0x5d, 0xc3]), Some((16, true)));
        assert_eq!(
            exit(&[0x48, 0x83, 0xc4, 0x78, 0x5d, 0xc3]),
            Some((136, true))
        );
        assert_eq!(
            exit(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0xc3]),
            Some((264, false))
        );
        for other in [
            // Grows the stack; not whole words; too much; something else follows.
            &[0x48, 0x83, 0xc4, 0x88, 0xc3][..],
            &[0x48, 0x83, 0xc4, 0x09, 0xc3],
            &[0x48, 0x81, 0xc4, 0, 0, 0, 1, 0xc3],
            &[0x48, 0x83, 0xc4, 0x08, 0x90],
            &[0x5d, 0x90],
            &[0x5d, 0x5d, 0xc3],
            &[0x90],
        ] {
            assert_eq!(exit(other), None, "{other:x?}");
        }
    }

    #[test]
    fn the_last_bytes_of_a_page() {
        let memory = |address: u64| match address {
            0x1ff8 => Some(u64::from_le_bytes([
                0x90, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3,
            ])),
            STACK.. => Some(CALLER),
            _ if address == CALLER - 8 => Some(0xd1ff << 48),
            _ => None,
        };
        let rule = rule(0x1ffb, STACK, false, memory).expect("known");
        assert_eq!(rule.cfa_offset, 16);
    }

    #[test]
    fn only_behind_calls() {
        let ret = [0x90, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        let after = |call: &[u8]| found(0x1010, &ret, true, call).is_some();
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x10],
            &[0xff, 0x50, 8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            assert!(after(call), "{call:x?}");
        }
        // A jump, a push, a call that ends elsewhere.
        for other in [&[0xe9, 1, 2, 3, 4][..], &[0xff, 0xe0], &[0xff, 0xd0, 0x90]] {
            assert!(!after(other), "{other:x?}");
        }
    }
}
