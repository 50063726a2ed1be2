//! What the instructions say of a frame that has neither a rule nor a frame pointer of its own; as
//! `bpf/include/unwind_code.bpf.h`, which see.

use crate::rule::{Cfa, FpMode, Rule};

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// mov %rsp,%rbp
const MOV_SP_TO_BP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
const PUSH_BP: u8 = 0x55;
const POP_BP: u8 = 0x5d;
const PAGE: u64 = 4096;

/// The rule for a frame at `ip`, when what runs next is an epilogue, or a prologue not yet done, and a call precedes the
/// return address that it gives. `exact`: the frame is at `ip`, and does not return to it.
pub(crate) fn rule(
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
        if code.starts_with(&ENDBR64) || code[0] == PUSH_BP && is_mov_sp_to_bp(&code[1..]) {
            return Some(leaving(8, false));
        }
        if is_mov_sp_to_bp(&code) && memory(ip.wrapping_sub(8))?.to_le_bytes()[7] == PUSH_BP {
            return Some(leaving(16, true));
        }
    }
    let (popped, rest) = match code {
        // add $imm8,%rsp
        [0x48, 0x83, 0xc4, bytes, ..] if bytes < 0x80 => (u32::from(bytes), &code[4..]),
        // add $imm32,%rsp
        [0x48, 0x81, 0xc4, b0, b1, b2, 0, _] => (u32::from_le_bytes([b0, b1, b2, 0]), &code[7..]),
        _ => (0, &code[..]),
    };
    let saved = rest.first() == Some(&POP_BP);
    let rest = &rest[usize::from(saved)..];
    // ret, ret $imm16
    let leaves = matches!(rest.first(), Some(0xc3 | 0xc2)) && popped % 8 == 0;
    leaves.then(|| {
        leaving(
            i32::try_from(popped).expect("24 bits") + if saved { 16 } else { 8 },
            saved,
        )
    })
}

fn leaving(bytes: i32, saved: bool) -> Rule {
    Rule {
        cfa: Cfa::Sp,
        cfa_offset: bytes,
        fp: if saved { FpMode::AtCfa } else { FpMode::Same },
        fp_offset: if saved { -16 } else { 0 },
    }
}

fn is_mov_sp_to_bp(code: &[u8]) -> bool {
    MOV_SP_TO_BP.iter().any(|mov| code.starts_with(mov))
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
        for mov in MOV_SP_TO_BP {
            let code = [&[PUSH_BP][..], &mov].concat();
            assert_eq!(exit(0x90, &code, true), Some((8, false)));
            assert_eq!(exit(PUSH_BP, &code[1..], true), Some((16, true)));
            assert_eq!(exit(0x90, &code[1..], true), None);
            assert_eq!(exit(0x90, &code, false), None);
            assert_eq!(exit(PUSH_BP, &code[1..], false), None);
        }
        assert_eq!(exit(0x90, &[PUSH_BP, 0x90], true), None);
        assert_eq!(exit(0x90, &ENDBR64, false), None);
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
